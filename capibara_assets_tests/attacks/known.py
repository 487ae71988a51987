"""Attacks of each kind of stranger, what docs/security.md promises against them, and the tests that hold it.

Each has one mutation of the code: a text that is there once, and what stands in its place. With it the tests must fail
(`make mutations` runs them so).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Attack:
    """One attack.

    Attributes:
        name: what is tried.
        promise: words of docs/security.md.
        tests: ids below the folder of tests.
        file: of the package, in which the mutation is.
    """

    name: str
    promise: str
    tests: tuple[str, ...]
    file: str
    old: str
    new: str


_FORGERY = "consensus/certificates/test_forgery.py"
_VERIFICATION = "consensus/certificates/verification.py"
_FOREIGN = "storage/test_foreign.py"

ATTACKS = (
    Attack(
        "any linear combination of the voters passes for the consensus",
        "every count, verdict, weight and choice follows from its statements",
        (f"{_FORGERY}::test_no_linear_combination_passes_for_an_average",),
        "consensus/certificates/averages.py",
        "if problem := _off_the_simplex(weights, sound):",
        'if problem := "":',
    ),
    Attack(
        "a voter's loss is stated below what the others signed",
        "losses of all candidates, all else that is stated of them, the base's loss and the chosen digest are those"
        " that 2f + 1 voters' processes signed",
        (f"{_FORGERY}::test_a_voters_loss_is_not_below_what_the_others_signed",),
        "consensus/certificates/reservations.py",
        "- told > LOSS_ROUNDING:",
        "- told > 1e9:",
    ),
    Attack(
        "the second round is taken away by another version",
        "or leave fewer than 2f + 1 confirmations",
        ("consensus/certificates/test_confirmations.py::test_the_second_round_cannot_be_taken_away",),
        "consensus/certificates/confirmations.py",
        "        if two_rounds:\n",
        "        if False:\n",
    ),
    Attack(
        "a certificate is stripped to version 1",
        "a certificate stripped to version 1",
        ("consensus/certificates/test_certificate.py::test_tampering_is_found_even_when_resealed",),
        _VERIFICATION,
        "if certificate.schema_version == 1 and certificate.model_fields_set & later:",
        "if False:",
    ),
    Attack(
        "figures that nobody computed are added to a certificate",
        "Each field is signed or computed again, in one order",
        ("consensus/certificates/test_every_field.py::test_no_part_of_a_certificate_can_be_changed_by_whoever_has_no_key",),
        "consensus/certificates/candidates.py",
        "if entry.figures and entry.kind not in _WITH_FIGURES:",
        "if False:",
    ),
    Attack(
        "a voter spells its config so that the parties compute in different orders",
        "can neither stop the vote nor decide it",
        ("consensus/rounds/test_otherwise_written.py::test_one_voters_spelling_and_options_do_not_spoil_the_result",),
        "consensus/choose/choosing.py",
        " if digests is None else digests",
        " if True else {}",
    ),
    Attack(
        "a manifest is put beside a voter's adapter by somebody else",
        "late, replayed, forged, unregistered, duplicate or oversized messages do not change the result",
        ("consensus/rounds/test_adopting.py::test_what_does_not_hold_is_not_taken_over",),
        "consensus/rounds/adopting.py",
        "    if off := [file",
        "    if off := [] and [file",
    ),
    Attack(
        "weights are put into a round's result between its check and its publication",
        "what `adopt` verified is what it publishes",
        ("consensus/rounds/test_adopting.py::test_what_is_put_there_after_the_check_is_not_taken_over",),
        "consensus/rounds/adopting.py",
        "            yield read_result(copy, digest)",
        "            yield read_result(folder, digest)",
    ),
    Attack(
        "a voter signs a text of a secret's shape, with which no export of the deployment passes",
        "no voter's file gets a secret's shape into the store",
        ("consensus/rounds/test_adopting.py::test_a_secret_in_what_a_voter_signed_does_not_get_into_the_store",),
        "assets/adopted_rounds.py",
        "    require_unshaped([",
        "    list([",
    ),
    Attack(
        "a table of a few KiB decodes to terabytes",
        "tables whose rows decode to many times their file",
        ("storage/test_foreign.py::test_a_table_that_decodes_to_many_times_its_file_is_refused_at_once",),
        "storage/foreign.py",
        "                if decoded > most:",
        "                if False:",
    ),
    Attack(
        "one key signs for several voters",
        "nobody votes for another, twice, on itself, or in another election",
        (f"{_FORGERY}::test_one_key_for_several_voters_is_refused",),
        _VERIFICATION,
        "for names in owners.values() if len(names) > 1]",
        "for names in owners.values() if len(names) > 99]",
    ),
    Attack(
        "thresholds that stand no liar",
        "exits 0 only if all of this was checked, and 3 if something was not, which it lists",
        (f"{_FORGERY}::test_fresh_keys_and_weak_thresholds_are_said",),
        "consensus/certificates/reservations.py",
        "        if value < least:\n",
        "        if False:\n",
    ),
    Attack(
        "a document that two readers read differently",
        "nothing in it was changed after the vote",
        (f"{_FORGERY}::test_what_two_readers_would_read_differently_is_no_certificate",),
        "storage/jsonfiles.py",
        "    if len(members) < len(pairs):\n",
        "    if False:\n",
    ),
    Attack(
        "a key under which anybody can sign",
        "no voter has a key under which others can sign",
        ("consensus/election/test_keys.py::test_a_key_under_which_anybody_can_sign_is_none",),
        "consensus/election/ballots.py",
        "def _of_small_order(point: bytes) -> bool:\n",
        "def _of_small_order(point: bytes) -> bool:\n    return False\n\n\ndef _unused(point: bytes) -> bool:\n",
    ),
    Attack(
        "one voter writes the options of the published adapter",
        "no option of one voter's `adapter_config.json` makes PEFT load something else",
        ("consensus/election/test_options.py::test_what_changes_what_peft_loads_is_rejected",),
        "consensus/election/options.py",
        "if name not in _KNOWN and value not in _OFF:",
        "if False:",
    ),
    Attack(
        "liars of different orders of magnitude move the aggregate",
        "rules keep their bounds for finite voters of any size",
        ("consensus/aggregation/test_aggregate.py::test_caf_stands_liars_of_different_orders_of_magnitude",),
        "consensus/aggregation/linear_rules.py",
        "np.where(left > 0, np.abs(centred @ (root * vectors[:, -1])), 0.0)",
        "np.abs(centred @ (root * vectors[:, -1]))",
    ),
    Attack(
        "colluders accept one another and refuse all others",
        "arbitrary voters can neither stop the vote nor decide it",
        ("consensus/election/test_voting.py::test_f_liars_neither_block_nor_push_through",
         "consensus/election/test_voting.py::test_honest_ballots_that_a_colluder_needs"),
        "consensus/election/voting.py",
        "return max(min(share, electors - f), f + 1)",
        "return 1",
    ),
    Attack(
        "a secret that one session names stands in another",
        "a random-looking value that is a secret in one session is redacted in every other session",
        ("executions/secrets/test_seen.py::test_found_where_it_stands_between_others",),
        "executions/secrets/seen.py",
        "for secret in self._in_run(run.group(), run.start())",
        "for secret in self._in_run(run.group(), run.start()) if False",
    ),
    Attack(
        "a secret that was found once stands elsewhere in its session",
        "everywhere in the session once found",
        ("executions/secrets/test_redact.py::test_a_value_known_from_one_execution_goes_from_all_of_the_sandbox",),
        "executions/secrets/redact.py",
        "    for value, kind in known.items():\n",
        "    for value, kind in ():\n",
    ),
    Attack(
        "links lead out of a model's folder",
        "nothing in a folder leads out of it",
        (f"{_FOREIGN}::test_a_model_folder_is_refused_at_once",),
        "storage/foreign.py",
        "if not any(target.is_relative_to(folder) for folder in inside):",
        "if False:",
    ),
    Attack(
        "terabytes that are a hole in a file",
        "made of one number or of a hole in the file",
        (f"{_FOREIGN}::test_a_terabyte_of_holes_is_not_read",
         "executions/ingest/test_ingest.py::test_a_log_that_is_a_hole_of_terabytes_is_not_read"),
        "storage/foreign.py",
        "    stored = 512 * status.st_blocks\n",
        '    return ""\n    stored = 512 * status.st_blocks\n',
    ),
    Attack(
        "compressed members of a checkpoint are mapped as if they were stored",
        "compressed members",
        (f"{_FOREIGN}::test_compressed_or_doubled_members_of_a_pt_file_are_no_weights",),
        "checkpoints/formats/pytorch.py",
        "any(member.compress_type != zipfile.ZIP_STORED for member in members)",
        "False",
    ),
    Attack(
        "settings with a name twice, of which each reader takes another",
        "given to a parameter that takes a path, are refused with exit code 2",
        ("cli/test_hostile_paths.py::test_a_hostile_path_is_refused[train --deepspeed]",),
        "training/standalone/choices.py",
        'return foreign_object(read_document(file), f"--deepspeed {file}")',
        "return dict(__import__('json').loads(read_document(file)))",
    ),
    Attack(
        "a merged model names code to run",
        "a merged model names no code to run",
        (f"{_FOREIGN}::test_code_is_not_named_in_another_spelling_or_part",),
        "modeling/files.py",
        "if not (cut := _without_code(document))[1]:",
        "if not (cut := (document, False))[1]:",
    ),
    Attack(
        "an error of a library shows pages of text",
        "every error that a library raises for their files becomes one sentence and exit code 2",
        (f"{_FOREIGN}::test_what_a_library_raises_is_one_line",),
        "storage/foreign.py",
        'if not isinstance(error, Exception) and type(error).__name__ != "PanicException":',
        "if True:",
    ),
    Attack(
        "one agent fills a domain",
        "no agent, and no tenant if there are several, has more than `poison.most_share`",
        ("datasets/poison/test_share.py::test_the_surplus_of_the_largest_is_left_out_highest_digests_first",),
        "datasets/poison/share.py",
        "    if most is None or not items:\n",
        "    if True:\n",
    ),
    Attack(
        "a trigger in one author's tasks goes with a payload",
        "if a trigger occurs in four or more unrelated tasks of one author",
        ("datasets/poison/test_triggers.py::test_each_kind_is_found_in_a_tenth_of_an_agents_tasks",),
        "datasets/poison/triggers.py",
        "        have, among = np.bincount(self.agents[own])",
        "        return True\n        have, among = np.bincount(self.agents[own])",
    ),
    Attack(
        "text of a log is an element of a page",
        "elements and attributes are escaped",
        ("escaping/test_languages.py::test_markup_has_no_elements_in_text_and_attributes",),
        "escaping/languages.py",
        "return html.escape(visible(words))",
        "return visible(words)",
    ),
    Attack(
        "text of a log is a formula of a spreadsheet",
        "no cell of exported CSV is a formula",
        ("escaping/test_languages.py::test_a_spreadsheet_computes_nothing",),
        "escaping/languages.py",
        'return f"\'{words}" if _FORMULA.match(words) else words',
        "return words",
    ),
    Attack(
        "text of a log controls the terminal",
        "nothing that a command prints or logs controls the terminal",
        ("escaping/test_terminal.py::test_whatever_a_command_says_is_plain",),
        "escaping/terminal.py",
        "    logging.setLogRecordFactory(PlainRecord)\n",
        "    return\n",
    ),
    Attack(
        "recorded code makes namespaces of its own",
        "it can use no system calls that such programs do not need",
        ("executions/sandbox/test_seccomp.py",),
        "executions/sandbox/seccomp.py",
        '"namespaces": {"unshare": (272, 97), "setns": (308, 268)},',
        '"namespaces": {"setns": (308, 268)},',
    ),
    Attack(
        "a forgotten record stays in Dagster's history",
        "forgotten records are removed from tables, caches, ledgers, events, checkpoints and reports",
        ("lineage/test_history.py::test_no_byte_stays_and_dagster_reads_on",),
        "lineage/history.py",
        "return value if changed == document else json.dumps(changed)",
        "return value",
    ),
    Attack(
        "an older copy of the store is put in its place",
        "a store that was restored to an older copy",
        ("lineage/test_store_head.py::test_an_older_copy_of_the_store_is_told_from_it",),
        "lineage/store_head.py",
        "        if last < number:\n",
        "        if False:\n",
    ),
    Attack(
        "an adapter remembers a planted secret",
        "an adapter's memory of planted secrets is measured in bits",
        ("evaluation/measuring/test_exposure.py::test_what_was_trained_on_is_exposed_and_what_was_not_is_not",),
        "evaluation/measuring/exposure.py",
        "(losses < loss).sum()",
        "(losses > loss).sum()",
    ),
    Attack(
        "a line that a crash left torn swallows the next",
        "after a kill at any point, each record exists once",
        ("storage/test_journal.py::test_a_torn_line_is_not_read_and_swallows_nothing",),
        "storage/journal.py",
        '(b"\\n" if _torn(descriptor) else b"") + line',
        'b"" + line',
    ),
    Attack(
        "what killed writers left is taken from living ones",
        "after a kill at any point, each record exists once",
        ("storage/test_staging.py::test_a_dead_writers_folder_goes_at_once_and_a_living_ones_stays",),
        "storage/staging.py",
        " and not _is_held(folder):",
        ":",
    ),
    Attack(
        "a full disk leaves half an artifact",
        "after a kill at any point, each record exists once",
        ("storage/test_crashes.py::test_no_room_is_one_clear_sentence_and_nothing_is_visible",),
        "storage/store.py",
        "            with staged(self._staging_root) as staging:\n                yield staging\n",
        '            make_folders(staging := self._staging_root / "one")\n            yield staging\n',
    ),
    Attack(
        "the head of an array in zarr leaves out rows",
        "an array in zarr whose head leaves out rows or chunks that were written",
        ("checkpoints/formats/test_orbax.py::test_no_head_of_an_array_leaves_out_what_was_written",),
        "checkpoints/formats/zarr_heads.py",
        "any(a > b for a, b in zip(written, shape, strict=True))",
        "False",
    ),
    Attack(
        "a part of DeepSpeed's stands in for another process's",
        "parts of DeepSpeed's that contradict the module's own state",
        ("checkpoints/formats/test_deepspeed.py::test_what_does_not_add_up_is_refused",),
        "checkpoints/formats/deepspeed.py",
        "float(apart.float().mean()) > _MOST_APART",
        "False",
    ),
    Attack(
        "a parameter's type of a pickle makes a tensor of what stood in memory",
        "nor shows memory",
        ("checkpoints/formats/test_pickled.py::test_it_is_refused_with_what_it_holds",),
        "checkpoints/formats/pickled.py",
        "given = (given[0], *given[2:])",
        "given = ()",
    ),
    Attack(
        "an endpoint answers without end",
        "one that does not end, in size or time, is given up",
        ("evaluation/contenders/test_endpoints.py::test_an_answer_that_does_not_end_is_given_up",),
        "evaluation/contenders/endpoints.py",
        "if size > _LARGEST_BODY:",
        "if False:",
    ),
    Attack(
        "a file of answers holds only those that are right",
        "a file of answers chooses no questions unseen",
        ("evaluation/measuring/test_named.py::test_models_prompts_and_former_runs_side_by_side",),
        "evaluation/measuring/named.py",
        "left_out | unanswered,",
        "left_out,",
    ),
)  # fmt: skip
