"""What a user gets wrong, and what they read: one message with the cause and the next step, and nothing was made.

Each row is a move, and in it two patterns: the cause, and what to do. `test_errors.py` has what damages a file.
"""

import ast
import errno
import io
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from capibara_assets.automation.pipeline import _sentence
from capibara_assets.cli.main import _system_problem, main
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import REMEDIES, InputError, remedy_of
from capibara_assets_tests.forked import Forked, Say

Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Move:
    """A command with `{folder}` and `{port}` (taken) in it, its variables, and what has to be said."""

    command: str
    cause: str
    step: str
    variables: dict[str, str] = field(default_factory=dict)


BAD_YAML = {"CAPIBARA_RECIPES": "{folder}/recipes"}
MOVES = {
    # paths and files
    "experience that is not there": Move("run --experience /nowhere/at/all", "all does not exist", "give a folder"),
    "base model that is not there": Move("run --base-model /nowhere/m", "/nowhere/m does not exist", "give a folder"),
    "base model that is a file": Move("run --base-model {folder}/file", "file is a file", "give a folder"),
    "base model of the Hub, not fetched": Move("run --base-model a/b@main", "a/b@main is not here", "model fetch a/b"),
    "base model without its variable": Move("run --base-model 20b", "base model 20b", "set MODEL_20B_PATH"),
    "verdict file that is not there": Move("run --audit /nowhere/v.jsonl", "no verdict file", "correct --audit"),
    "training data that are not there": Move("train --data /nowhere/d.jsonl", "does not exist", "give a file or a f"),
    "training data that are no JSON": Move("train --data {folder}/bad.jsonl", "bad.jsonl:1: the line", "character 1"),
    "import of a file that is not there": Move("dataset import --domain sql /no/x.jsonl", "is no file", "give a file"),
    "certificate that is not there": Move("consensus verify /no/c.json", "does not exist", "give the certificate"),
    "request that is not there": Move(
        "doctor --request /no/r.json", "r.json does not exist", "give a training's request.json"
    ),
    "quick checks of no training": Move("doctor --quick", "--quick is about a training", "give --data or --request"),
    "epochs of another folder": Move("epochs {folder}", "no epoch_info.json", "give the output folder"),
    "output that is a file": Move("schema --write {folder}/file", "file: File exists", "move it, or write elsewhere"),
    "name that no file can have": Move(f"run --experience {'a' * 300}", "File name too long", "give a shorter one"),
    "option with choices that is missing": Move("metrics export", "Missing option '--to'", "tensorboard"),
    "checkpoint of no format": Move("checkpoint convert {folder} {folder}/o --to dcp", "is in no format", "huggingf"),
    "recipes that are not there": Move(
        "run", "no recipe '.*' for profile 'demo'", "unset CAPIBARA_RECIPES", {"CAPIBARA_RECIPES": "/nowhere"}
    ),
    "model to diagnose that is not there": Move("debug-model --model /no/m", "/no/m does not exist", "give a folder"),
    "checkpoints that are not there": Move(
        "train --data {folder}/chats.jsonl --output {folder}/o --resume-from-checkpoint latest",
        "no resume point in",
        "leave --resume-from-checkpoint out to start",
    ),
    "deployment that is not there": Move(
        "config", "no file /no/d.yaml", "choose from kubernetes, local", {"CAPIBARA_DEPLOYMENT": "/no/d.yaml"}
    ),
    "YAML that is none": Move("run", r"decision\.yaml is not YAML", "line 2, column 1", BAD_YAML),
    # names
    "domain": Move("run --domains python,cobol", "unknown domain cobol", "choose from python, sql"),
    "domain that is misspelt": Move("run --domains pyton", "unknown domain pyton", "api; did you mean 'python'"),
    "no domain": Move("run --domains ,", "unknown domain", "choose from python, sql"),
    "hardware target": Move("run --target abacus-1", "no hardware target 'abacus-1'", "cpu-laptop"),
    "asset": Move("run --select no_such_asset", "no selection of assets", "assets are: ace_playbooks"),
    "empty selection": Move("run --select=", "'--select': it is empty", "Give a value or leave it out"),
    "asset that is misspelt": Move(
        "run --select e2b_logs,moe_datset+", "'moe_datset.*did you mean 'moe_dataset'", "assets"
    ),
    "pattern of a misspelt asset": Move(
        "run --select key:e2b_lgos", "selects nothing.*did you mean 'e2b_logs'", "assets"
    ),
    "asset without its inputs": Move(
        "run --select moe_dataset --domains sql",
        "moe_dataset is made from consolidated_playbook, e2b_patterns, example_groups, of which there is no .* sql",
        r"--select \+moe_dataset\)",
    ),
    "profile": Move("run --profile fast", "'fast' is not one of", "'demo', 'laptop', 'full'"),
    "profile that is misspelt": Move("run --profile demoo", "'demoo' is not one of", "did you mean 'demo'"),
    "launcher": Move("run", "CAPIBARA_LAUNCHER is 'slurm'", "'local' or 'k8s'", {"CAPIBARA_LAUNCHER": "slurm"}),
    "fault": Move("run --fault voter-0", "has 'voter-0'", "expected VOTER=FAULT, such as"),
    "seed": Move("run", "CAPIBARA_SEED is 'fast'", "give a whole number", {"CAPIBARA_SEED": "fast"}),
    "no domain at a time": Move("run --parallel 0", "0 is not in the range", "x>=1"),
    "profile by its variable": Move(
        "run", "unknown profile 'demoo': choose from demo, full", "did you mean 'demo'", {"CAPIBARA_PROFILE": "demoo"}
    ),
    "seed below zero": Move("run --seed -1", "-1 is not in the range", "x>=0"),
    "seed that is too large": Move("run", "CAPIBARA_SEED is '9{30}'", "from 0 to", {"CAPIBARA_SEED": "9" * 30}),
    "data to redact": Move(
        "run", "CAPIBARA_REDACT_ALSO is 'emial'", "'email' or 'ip', .* mean 'email'", {"CAPIBARA_REDACT_ALSO": "emial"}
    ),
    "size that is none": Move("run", "FETCH_GIB is 'nan'", "finite|greater", {"CAPIBARA_FETCH_GIB": "nan"}),
    "size below zero": Move("run", "FETCH_GIB is '-1'", "than or equal to 0", {"CAPIBARA_FETCH_GIB": "-1"}),
    "tick": Move("run", "TICK_SECONDS is 'x'", "number above zero", {"CAPIBARA_TICK_SECONDS": "x"}),
    "patience": Move("run", "SECONDS is 'x'", "seconds above zero", {"CAPIBARA_RUN_PATIENCE_SECONDS": "x"}),
    "automation": Move("run", "AUTOMATION is 'no'", "choose from on, off", {"CAPIBARA_AUTOMATION": "no"}),
    "sandbox": Move("run", "CAPIBARA_SANDBOX is 'moon'", "local, e2b", {"CAPIBARA_SANDBOX": "moon"}),
    "voters' keys": Move("run", "/nowhere/registry.json", "register", {"CAPIBARA_VOTER_KEYS": "/nowhere"}),
    "key of a run's checkpoints": Move(
        "run", "CAPIBARA_CHECKPOINT_KEY is", "openssl rand", {"CAPIBARA_CHECKPOINT_KEY": "short"}
    ),
    "fault of no voter": Move("run --fault voter-99=nan", "unknown voter .* 'voter-99'", "choose from voter-0"),
    "fault of no kind": Move("run --fault voter-0=nam", "unknown fault .* 'nam'", "did you mean 'nan'"),
    "store of no kind": Move(
        "run", "s4://x/y is neither a folder", "gs://bucket/prefix", {"CAPIBARA_STORE": "s4://x/y"}
    ),
    "option": Move("run --experiense x", "No such option '--experiense'", "Did you mean '--experience'"),
    "command": Move("reprot", "No such command 'reprot'", "Did you mean 'report'"),
    "time": Move("backfill --domains sql --since yesterday", "neither a time nor an age", "write 2026-11-20"),
    "model of the Hub": Move("model fetch justaname", "is no Hub model id", "expected owner/name@revision"),
    "setting of a recipe": Move(
        "train --data {folder}/chats.jsonl --set hardware.proceses=2 --plan",
        "unknown key 'proceses'",
        "mean 'processes'",
    ),
    "setting of a deployment": Move(
        "config", "unknown key 'hoem'", "did you mean 'home'", {"CAPIBARA_DEPLOYMENT": "{folder}/deployment.yaml"}
    ),
    "merge method": Move("merge tie a b --out o", "unknown merge method 'tie'", r"known are .*did you mean 'ties'\?"),
    "merge without a base": Move(
        "merge ties a b --out o", "merges differences from a base", "give the model .* --base"
    ),
    "partition": Move("dataset export cobol --out o", "'cobol' is not one of", "'python', 'sql'"),
    "partition that nobody made": Move("lineage certificate sql", "no certificate 'sql'", "name a domain that has"),
    "batch that does not come out": Move(
        "train --data {folder}/chats.jsonl --batch-size 3 --grad-accum 4 --global-batch 4 --plan",
        "micro_batch 3 x processes 1 x accumulation 4 = 12, but global_batch is 4",
        "change one of them, or leave accumulation out",
    ),
    # keys and partitions of what was never made
    "report before a run": Move("report", "no run yet", "start one with `capibara run`"),
    "example": Move("lineage example nope", "no example 'nope'", "--select moe_dataset` makes them"),
    "adapter": Move("lineage adapter sql/consensus", "is not materialized", "run --domains sql` makes it"),
    "checkpoint": Move("checkpoint show sql/consensus@latest", "no checkpoint", "`capibara run` fills it"),
    "job": Move("jobs logs nope", "'nope' names no jobs", "see `capibara jobs ls`"),
    "rollback of nothing": Move("rollback", "nothing was promoted", "see `capibara promote --history`"),
    "execution to forget": Move("forget nope", "no execution 'nope'", "capibara lineage execution"),
    "log lines before a run": Move("quarantine show nope", "not materialized yet", "materialize it first"),
    "training logs before a training": Move("metrics export --to tensorboard --out {folder}/o", "no training", "train"),
    "key of checkpoints": Move(
        "checkpoint ls", "is neither base64 nor hex", "openssl rand -base64 32", {"CAPIBARA_CHECKPOINT_KEY": "short"}
    ),
    # the machine
    "TPU for PyTorch": Move(
        "train --data {folder}/chats.jsonl --target tpu-v5e-64 --plan", "cannot use", "name a CPU or GPU target"
    ),
    "port of the UI that is taken": Move("ui --port {port}", "not free .process", "choose another with --port"),
    "port of the dashboard that is taken": Move("dashboard --port {port}", "not free .process", "with --port"),
    "home that is a file": Move("run", "Not a directory", "move it", {"CAPIBARA_HOME": "{folder}/file"}),
    "home whose history is damaged": Move(
        "quarantine list",
        "database cannot be used .*not a database",
        "capibara doctor",
        {"CAPIBARA_HOME": "{folder}/damaged"},
    ),
    "home without permission": Move(
        "run", "not permitted|denied|Read-only", "another disk|write elsewhere", {"CAPIBARA_HOME": "/sys/capibara"}
    ),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A folder with what rows name, and a port that is taken."""
    folder = tmp_path_factory.mktemp("moves")
    (folder / "file").write_text("")
    (folder / "bad.jsonl").write_text("{{{\n")
    chat = {"messages": [{"role": "user", "content": "Say {}."}, {"role": "assistant", "content": "{}, as you wish."}]}
    words = ("lamp", "river", "copper", "anchor", "velvet", "marble", "harbour", "thunder", "window", "forest")
    (folder / "chats.jsonl").write_text("\n".join(json.dumps(chat).replace("{}", word) for word in words))
    (folder / "deployment.yaml").write_text("storage: {hoem: x}\n")
    shutil.copytree(resources_root() / "recipes", folder / "recipes")
    (folder / "recipes" / "decision.yaml").write_text("a: [1\n")
    (folder / "damaged" / "dagster" / "history").mkdir(parents=True)
    (folder / "damaged" / "dagster" / "history" / "runs.db").write_text("no database at all\n" * 999)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield {"folder": str(folder), "port": str(taken.getsockname()[1])}


def test_the_table_is_of_thirty_moves_at_least():
    assert len(MOVES) >= 30


@pytest.mark.parametrize("name", MOVES)
def test_a_wrong_move_gets_its_cause_and_the_next_step(
    name: str, capibara: Callable[..., Done], places: dict[str, str], tmp_path: Path
):
    move = MOVES[name]
    variables = {key: value.format(**places) for key, value in move.variables.items()}
    home = variables.pop("CAPIBARA_HOME", str(tmp_path / "home"))
    done = capibara(*(word.format(**places) for word in move.command.split()), home=home, **variables)
    assert done.returncode == 2, done.stdout + done.stderr
    assert re.search(move.cause, done.stderr), done.stderr
    assert re.search(move.step, done.stderr), done.stderr
    assert "Traceback" not in done.stderr and len(re.findall("^capibara: ", done.stderr, re.M)) <= 1, "one message"
    assert not (tmp_path / "home" / "store" / "artifacts").exists(), "nothing was made"


GRAPH, TRAINING = "cli/graph/test_health.py", "training/plan/test_preflight.py"
ELSEWHERE = {
    "old Python": ("test_python_versions.py", "test_make_says_in_one_line_how_to_get_an_interpreter"),
    "no Node.js": (GRAPH, "test_tools_that_are_missing"),
    "old Node.js": (GRAPH, "test_a_node_that_is_too_old"),
    "no libtpu": (GRAPH, "test_libtpu_is_needed_on_a_slice_alone"),
    "no TPU": (GRAPH, "test_a_target_whose_chips_are_not_here"),
    "full queue": (GRAPH, "test_runs_that_do_not_end_and_a_queue_that_nobody_takes"),
    "credentials": (GRAPH, "test_credentials_that_the_settings_need"),
    "package of a training": (TRAINING, "test_a_package_that_is_missing_is_named_before_the_start"),
    "extra of the dashboard": ("cli/training/test_dashboard.py", "test_without_tensorboard_it_says_what_to_install"),
    "extra of a format": ("checkpoints/formats/test_formats.py", "test_a_missing_extra_is_named"),
    "extra of exports": (
        "evaluation/serving/test_quantised_exports.py",
        "test_without_the_library_it_says_what_to_install",
    ),
    "extra of exporters": (
        "training/supervisor/test_reporting.py",
        "test_an_exporter_that_is_not_installed_is_said_before_anything_runs",
    ),
}
"""Moves that need another machine or other packages, and the tests that hold what is said of them."""


@pytest.mark.parametrize("name", ELSEWHERE)
def test_other_moves_have_tests_of_their_own(name: str):
    file, test = ELSEWHERE[name]
    tree = ast.parse((Path(__file__).parents[1] / file).read_text("utf-8"))
    assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


# --- what rows cannot bring about ------------------------------------------------------------------------------------


def test_a_cancelled_command_says_how_to_go_on(
    capibara: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    def cancelled(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("capibara_assets.cli.graph.run.run_deployment", cancelled)
    done = capibara("run", home=tmp_path)
    assert (
        done.returncode == 130 and done.stderr.strip() == "capibara: interrupted; run the same command again to resume"
    )


@pytest.mark.slow
def test_a_disk_that_is_full_is_named_with_what_to_do(tmp_path: Path):
    """A limit on the size of files stands for the disk: the system refuses the write in the same way."""

    def run(say: Say) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        os.environ |= {"CAPIBARA_HOME": str(tmp_path / "home"), "DAGSTER_HOME": ""}
        sys.argv, sys.stderr = ["capibara", "run", "--domains", "sql"], io.StringIO()
        try:
            main()
        except SystemExit as end:
            say(end.code)
        say(sys.stderr.getvalue())

    code, *said = Forked(run).rest().splitlines()
    assert code == "2" and "Traceback" not in "\n".join(said), said
    assert "File too large; files may not grow that large here: raise the limit" in "\n".join(said)


@pytest.mark.parametrize("number", sorted(REMEDIES))
def test_what_the_system_refuses_within_a_step_has_a_next_step_too(number: int):
    assert remedy_of(str(OSError(number, os.strerror(number), "/some/file"))) == REMEDIES[number]


@pytest.mark.parametrize(
    ("number", "names", "said"),
    [
        (errno.ENOSPC, ("/home/a", None, "/full/a"), "/full/a: No space left on device; make room"),
        (errno.EDQUOT, ("/home/a", None, "/full/a"), "/full/a: Disk quota exceeded; your quota"),
        (errno.EACCES, ("/home/a", None, "/theirs/a"), "/theirs/a: Permission denied; change its owner"),
        (errno.EIO, ("/home/a", None, "/bad/a"), "/home/a -> /bad/a: Input/output error; the disk failed"),
        (errno.ENOSPC, ("/full/a",), "/full/a: No space left on device; make room"),
        (errno.ENOSPC, (), "No space left on device; make room"),
    ],
)
def test_of_two_files_the_one_is_named_that_is_written(number: int, names: tuple[str | None, ...], said: str):
    error = OSError(number, os.strerror(number), *names)
    assert _system_problem(error).startswith(said)
    within = _sentence(f"OSError: {error}\n")
    assert within.endswith(REMEDIES[number]) and ("/home/a" in within) == ("/home/a" in said)
    assert names[-1:] == () or str(names[-1]) in within


def test_another_error_has_none():
    assert _sentence("FileNotFoundError: [Errno 2] No such file or directory: 'a' -> 'b'").endswith("'a' -> 'b'")
    assert remedy_of(str(OSError(errno.ENOENT, "No such file", "x"))) == "" == remedy_of("ValueError: 28")


def test_a_sandbox_without_its_key_or_extra_names_both(monkeypatch: pytest.MonkeyPatch):
    from capibara_assets.executions.replay.e2b import sandbox_place

    monkeypatch.setenv("CAPIBARA_SANDBOX", "e2b")
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    with pytest.raises(InputError, match="E2B_API_KEY is not set"):
        sandbox_place()
    monkeypatch.setenv("CAPIBARA_SANDBOX", "moon")
    with pytest.raises(InputError, match="'moon': local, e2b, or nothing"):
        sandbox_place()


def test_the_last_lines_name_what_failed_for_a_reason_of_its_own():
    from capibara_assets.cli.graph.run import failure_lines

    followed = {("evaluation", "sql"): "moe_dataset[sql] is not materialized yet: materialize it first"}
    held = {("lora_config", "sql"): "moe_dataset[sql] failed a blocking check: mend what the check names"}
    own = {("e2b_logs", "_"): "[Errno 28] No space left on device; make room on that disk"}
    head, *lines = failure_lines(followed | held | own)
    assert head.startswith("1 failed, and 2 for want of those; what passed is kept")
    assert lines == ["  e2b_logs[_]: [Errno 28] No space left on device; make room on that disk"]
    assert len(failure_lines(followed)) == 2, "what failed before is of another run: it is named"
