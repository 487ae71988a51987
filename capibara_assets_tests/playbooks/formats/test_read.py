"""Reading playbooks of every family: real files, damaged ones with their known answers, and small authored ones."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.errors import InputError
from capibara_assets.executions.secrets.redact import redact_name, redact_text
from capibara_assets.playbooks.formats.detection import read_contents
from capibara_assets.playbooks.formats.parsed import tidy
from capibara_assets.playbooks.history import advice_of, exact_counters
from capibara_assets.playbooks.read import Playbooks, read_playbooks


def read(folder: Path, files: dict[str, str | bytes]) -> Playbooks:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_playbooks(folder)


def outcome(found: Playbooks, file: str, expected_key: str) -> str:
    """What became of a line (a number) or entry (an id) of a file: `kept`, or the reason it was quarantined for."""
    quarantine = found.quarantine.filter(pl.col("file") == file)
    bullets = found.bullets.filter(pl.col("source_file") == file)
    if expected_key == "file":
        rows, kept = quarantine.filter(pl.col("line") == 0), bullets
    elif expected_key.isdigit():
        rows = quarantine.filter(pl.col("line") == int(expected_key))
        kept = bullets.filter(pl.col("source_line") == int(expected_key))
    else:
        rows = quarantine.filter(pl.col("locator") == expected_key)
        kept = bullets.filter(pl.col("local_id") == expected_key)
    assert len(rows) + min(1, len(kept)) <= 1, f"{expected_key} ended twice"
    return rows["reason"][0] if len(rows) else "kept" if len(kept) else "ignored"


def test_damaged_playbooks_end_as_expected(shared_data: Path) -> None:
    folder = shared_data / "experience" / "bad"
    expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())
    found = read_playbooks(folder)
    playbooks = {name: lines for name, lines in expected.items() if name.startswith("playbook_")}
    assert len(playbooks) == 4
    for file, lines in playbooks.items():
        for key, said in lines.items():
            wanted = said["quarantined"] if isinstance(said, dict) else said.split(",")[0].split(" ")[0]
            assert outcome(found, file, key) == {"section": "ignored"}.get(wanted, wanted), (file, key)
    total = sum(isinstance(said, dict) for lines in playbooks.values() for said in lines.values())
    assert len(found.quarantine) == total, "nothing else is quarantined: execution logs are not for this reader"

    huge = found.bullets.row(by_predicate=pl.col("local_id") == "str-00006", named=True)
    assert exact_counters(huge) == (99999999999999999999, 0, 0)
    assert huge["helpful"] == 2**63 - 1
    two = found.bullets.row(by_predicate=pl.col("local_id") == "str-00008", named=True)
    assert two["content"] == "[str-00009] helpful=1 harmful=0 :: Two bullets in one line"
    orphan = found.bullets.row(by_predicate=pl.col("local_id") == "a-00001", named=True)
    assert (orphan["section"], orphan["flags"]) == ("b", ["section_differs_from_list", "listed_twice"])


def test_every_public_playbook_is_read(shared_data: Path, public: Playbooks) -> None:
    folder, found = shared_data / "experience", public
    index = [json.loads(line) for line in (folder / "playbooks" / "index.jsonl").read_text().splitlines()]
    family = dict(found.files.select("path", "family").iter_rows())
    for entry in index:
        assert family[f"playbooks/{entry['file']}"] == entry["format"]
    families = Counter(family.values())
    assert families["ace-text"] == 10 + 35  # with and without counters
    read_or_known = found.files.filter(pl.col("status").is_in(["read", "duplicate"]))
    assert len(read_or_known) == len(index) + 35

    # figures counted in the files by other means
    names = {entry["file"].split("/")[-1]: entry for entry in index}
    assert sum(entry["format"] == "adaptation-run" for entry in names.values()) == len(found.runs) == 29
    counted = 0
    for path in sorted((folder / "playbooks" / "evidence-json").iterdir()):
        document = json.loads(path.read_text())
        counted += len(document if isinstance(document, list) else document["bullets"])
    assert len(found.bullets.filter(pl.col("playbook_id").str.starts_with("evidence-json/"))) == counted
    lines = (folder / "playbooks" / "ace-text" / index[0]["file"].split("/")[-1]).read_text().splitlines()
    first = found.bullets.filter(pl.col("playbook_id") == index[0]["file"])
    assert len(first) == sum(line.startswith("[") for line in lines) - 1
    # real ids that are used twice with different advice: one in a file, three in two deltas of the same name
    taken = ["psw-00000", *(f"bullet-2025-10-26-{number:03d}" for number in (3, 4, 5))]
    assert sorted(found.quarantine["locator"]) == sorted(taken)
    assert set(found.quarantine["reason"]) == {"conflicting_bullet_id"}


def test_ace_text_with_continuations(tmp_path: Path) -> None:
    lines = [
        "\ufeff## ONE",
        "[a-1] helpful=2 harmful=1 :: first",
        "  second",
        "",
        "third",
        "",
        "## TWO",
        "- [b-00002] plain",
    ]
    text = "\r\n".join(lines)
    found = read(tmp_path, {"p.txt": text}).bullets.sort("local_id")
    assert found.select("section", "local_id", "content", "helpful", "harmful", "source_line").rows() == [
        ("ONE", "a-1", "first\nsecond\n\nthird", 2, 1, 2),
        ("TWO", "b-00002", "plain", 0, 0, 8),
    ]


def test_a_counter_beyond_every_count_is_quarantined(tmp_path: Path) -> None:
    found = read(tmp_path, {"p.txt": f"## S\n[a-1] helpful={'9' * 9000} harmful=0 :: x\n"})
    assert found.quarantine["reason"].to_list() == ["counter"] and len(found.bullets) == 0


def test_markdown_reports(tmp_path: Path) -> None:
    headings = (
        "# Skillbook\n## s\n### `s-00001`\n\nDo it.\n\n**Evidence:** seen\n\n*Tags: helpful=5, harmful=1, neutral=2*\n"
    )
    items = "## t\n\n- Ask first.\n  Justification: why\n  Evidence: once\n- [t-7] Then act. (helpful=3, harmful=0)\n"
    found = read(tmp_path, {"a.md": headings, "b.md": items}).bullets.sort("bullet_id")
    columns = ["section", "local_id", "content", "helpful", "harmful", "neutral", "flags"]
    assert found.select(columns).rows() == [
        ("s", "s-00001", "Do it.", 5, 1, 2, []),
        ("t", "t-00001", "Ask first.", 0, 0, 0, ["generated_id"]),
        ("t", "t-7", "Then act.", 3, 0, 0, []),
    ]


def test_times_titles_and_status(tmp_path: Path) -> None:
    bullets = {
        "a-1": {"content": "x y", "status": "invalid", "created_at": "2026-01-01T00:00:00", "updated_at": 0.5},
        "a-2": {
            "content": "z",
            "title": "A title",
            "created_at": "yesterday",
            "updated_at": "2026-01-01T02:00:00+02:00",
        },
    }
    rows = read(tmp_path, {"p.json": json.dumps({"bullets": bullets})}).bullets.sort("local_id").to_dicts()
    assert [row["status"] for row in rows] == ["invalid", "active"]
    assert [row["flags"] for row in rows] == [["time_without_zone"], ["unreadable_time"]]
    assert rows[0]["created_at"].isoformat() == rows[1]["updated_at"].isoformat() == "2026-01-01T00:00:00+00:00"
    assert rows[0]["updated_at"].timestamp() == 0.5
    assert (rows[1]["title"], rows[1]["content"]) == ("A title", "z")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({}, "missing:content"),
        ({"content": "  "}, "empty_content"),
        ({"content": "x", "helpful": "3"}, "type:helpful"),
        ({"content": "x", "helpful": True}, "type:helpful"),
        ({"content": "x", "harmful": -1}, "counter"),
        ({"content": "x", "harmful": 10**200}, "counter"),
        ({"content": "x", "section": ["s"]}, "type:section"),
        ([], "not_an_object"),
    ],
)
def test_entries_that_are_no_bullets(tmp_path: Path, entry: Any, reason: str) -> None:
    found = read(tmp_path, {"p.json": json.dumps({"bullets": {"a-1": entry, "a-2": {"content": "good"}}})})
    assert found.quarantine.select("file", "locator", "reason").rows() == [("p.json", "a-1", reason)]
    assert found.bullets["local_id"].to_list() == ["a-2"]


def test_unreadable_files_are_quarantined_in_the_playbook_folder_and_left_to_others_elsewhere(tmp_path: Path) -> None:
    broken = {
        "twice.json": '{"bullets": {"b": {"content": "x"}}, "a": 1, "a": 2}',
        "cut.json": '{"bullets": {"a": ',
        "deep.json": '{"bullets": ' + "[" * 100_000,
        "utf16.txt": "## S\n[a-1] helpful=1 harmful=0 :: x".encode("utf-16"),
    }
    (tmp_path / "own").mkdir()
    (tmp_path / "mixed").mkdir()
    own = read(tmp_path / "own", {f"playbooks/{name}": data for name, data in broken.items()})
    assert dict(own.quarantine.select("file", "reason").iter_rows()) == {
        "playbooks/twice.json": "duplicate_key:a",
        "playbooks/cut.json": "invalid_json",
        "playbooks/deep.json": "invalid_json",
        "playbooks/utf16.txt": "invalid_utf8",
    }
    log = json.dumps({"sandbox_id": "i", "code": "helpful=1 harmful=0 ::", "execution": None})
    mixed = read(
        tmp_path / "mixed", {"log.jsonl": f"{log}\n{log}\n", "utf16.txt": broken["utf16.txt"], "README.md": "# R"}
    )
    assert (len(mixed.files), len(mixed.quarantine)) == (0, 0)


def test_manifests_speak_for_their_folder_and_snapshots_find_each_other(tmp_path: Path) -> None:
    def text(*lessons: str) -> str:
        return "## S\n" + "".join(f"[s-{n:05d}] helpful=1 harmful=0 :: {lesson}\n" for n, lesson in enumerate(lessons))

    def agent(name: str, **more: Any) -> str:
        return json.dumps({"agent_id": name, "interactions": 10, "successes": 9, **more})

    found = read(
        tmp_path,
        {
            "playbooks/ada/agent.json": agent("ada", domain_expertise=["sql"]),
            "playbooks/ada/deep/one.txt": text("alpha beta", "gamma delta"),
            "playbooks/bob/agent.json": agent("bob"),
            "playbooks/bob/one.txt": text("alpha beta", "gamma delta"),  # the same bytes, another agent
            "playbooks/bob/copy.txt": text("alpha beta", "gamma delta"),  # the same bytes, the same agent
            "playbooks/loose/day1.txt": text("epsilon zeta"),
            "playbooks/loose/day2.txt": text("epsilon zeta", "eta theta"),
            "playbooks/loose/other.txt": text("iota kappa"),
            "playbooks/eve/agent.json": agent("eve", successes=11),
        },
    )
    agents = dict(found.bullets.select("playbook_id", "agent_id").unique().iter_rows())
    assert agents == {
        "ada/deep/one.txt": "ada",
        "bob/copy.txt": "bob",
        "loose/day1.txt": "loose/day1.txt",
        "loose/day2.txt": "loose/day1.txt",
        "loose/other.txt": "loose/other.txt",
    }
    status = dict(found.files.select("path", "status").iter_rows())
    assert status["playbooks/bob/one.txt"] == "duplicate"
    assert found.quarantine.select("file", "reason").rows() == [("playbooks/eve/agent.json", "agent")]
    assert "successes 11 exceed interactions 10" in found.quarantine["detail"][0]
    assert found.runs.select("agent_id", "interactions", "successes", "domain_expertise").sort("agent_id").rows() == [
        ("ada", 10, 9, ["sql"]),
        ("bob", 10, 9, []),
    ]


def test_secrets_are_taken_out_of_what_is_kept_and_what_is_quarantined(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text(
        "## S\n[a-1] helpful=1 harmful=0 :: use SECRET\n[a-2] helpful=SECRET harmful=0 :: x\n"
    )
    found = read_playbooks(tmp_path, redact=lambda text: text.replace("SECRET", "<KEY:1>"))
    assert found.bullets["content"].to_list() == ["use <KEY:1>"]
    assert "SECRET" not in str(found.quarantine.to_dicts()) and "<KEY:1>" in found.quarantine["detail"][0]


def test_a_secret_in_the_id_of_what_is_rejected_is_taken_out(tmp_path: Path) -> None:
    """Ids that differ in their secrets only stay two rows."""
    twice = '{"content": "x", "SECRET1": 1, "SECRET1": 2}'
    (tmp_path / "p.json").write_text(f'{{"bullets": {{"a-SECRET1": {{}}, "a-SECRET2": {{}}, "b": {twice}}}}}')
    found = read_playbooks(
        tmp_path,
        redact=lambda text: re.sub(r"SECRET\d", "<KEY:1>", text),
        redact_name=lambda name: re.sub(r"SECRET(\d)", r"KEY-\1", name),
    )
    assert "SECRET" not in str(found.quarantine.to_dicts())
    assert found.quarantine.select("locator", "reason").sort("locator").rows() == [
        ("a-KEY-1", "missing:content"),
        ("a-KEY-2", "missing:content"),
        ("b", "duplicate_key:KEY-1"),
    ]


TOKEN = "ghp_" + "Zk3Qw9Xv7Lm2Rt8Yp4Bn6Hj1Gf5Ds0AcUeIo"


@pytest.mark.parametrize(
    "text",
    [
        f"## S\n[a-1] helpful={TOKEN} harmful=0 :: x\n",
        json.dumps({"operations": [{"type": TOKEN, "content": "x"}, {"type": "TAG", "id": "b", "metadata": {}}]}),
        json.dumps({"bullets": [{"id": "a", "content": "x", "status": TOKEN}]}),
        json.dumps({"bullets": [{"id": "a", "content": "x", "tags": [TOKEN], "helpful": f"{TOKEN} times"}]}),
        *(json.dumps({"bullets": [{"id": 7, "content": f"{'x ' * half}{TOKEN} {'y ' * 200_000}"}]})
          for half in (32_737, 32_757, 131_057)),
        f"bullets: [helpful=\x00{'x ' * 32_757}{TOKEN}",
        '{"bullets": [' + f"{'1, ' * 21_840}{TOKEN}",
    ],
)  # fmt: skip
def test_no_piece_of_a_token_is_left_in_any_field(tmp_path: Path, text: str) -> None:
    """Also where a field is cut: half a token has no shape by which it could be known."""
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "p.json").write_text(text)
    found = read_playbooks(tmp_path, redact=redact_text, redact_name=redact_name)
    said = "".join(str(frame.rows()) for _, frame in found.tables().values())
    assert not any(TOKEN[start : start + 8].lower() in said.lower() for start in range(4, len(TOKEN) - 8))
    assert not found.quarantine.height or found.quarantine["text"].str.len_chars().max() <= 65_536


def test_missing_folder_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no folder .*absent"):
        read_playbooks(tmp_path / "absent")


@given(
    st.lists(
        st.sampled_from(
            [
                "## S",
                "##",
                "[a-00001] helpful=1 harmful=0 :: x",
                "[a-00001]",
                "[] helpful=1 harmful=0 :: y",
                "  more",
                "",
            ]
        )
        | st.text(max_size=12),
        max_size=12,
    ).map("\n".join)
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["bullets", "skills", "sections", "id", "content", "helpful", "a-1"]), inner
            )
        ),
        max_leaves=12,
    ).map(json.dumps),
    st.booleans(),
)
def test_no_input_is_a_crash_and_no_line_is_lost(text: str, own_folder: bool) -> None:
    found = read_contents(text.encode("utf-8", "surrogatepass"), own_folder=own_folder)
    if found.family != "ace-text" or found.parsed is None:
        return
    parsed = found.parsed
    if parsed.duplicates:
        return  # an exact repeat is counted, its lines are not kept twice
    starts = {bullet.line for bullet in parsed.bullets} | {each.line for each in parsed.rejected}
    kept = "\n".join([bullet.content for bullet in parsed.bullets] + [each.text for each in parsed.rejected])
    for number, line in enumerate(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"), start=1):
        if tidy(line) and not line.startswith("##") and number not in starts:
            assert tidy(line) in tidy(kept), line


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.extended)])
def test_the_order_of_files_does_not_matter(shared_data: Path, tmp_path: Path, step: int) -> None:
    """The same files under names that sort the other way round give the same lessons, agents apart."""
    source = shared_data / "experience" / "playbooks"
    files = sorted(path for path in source.rglob("*") if path.is_file() and path.suffix in (".json", ".txt", ".md"))
    chosen = files[::step]
    totals = []
    for turn, ordered in enumerate([chosen, chosen[::-1]]):
        for number, path in enumerate(ordered):
            copy = tmp_path / str(turn) / "playbooks" / f"{number:03d}__{path.name}"
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
        bullets = read_playbooks(tmp_path / str(turn)).bullets
        # a lesson may be dated by either of two equal copies, so wordings and counters are what must agree
        totals.append(sorted((a.text, a.helpful, a.harmful, a.neutral) for a in advice_of(bullets)))
    assert totals[0] == totals[1]
