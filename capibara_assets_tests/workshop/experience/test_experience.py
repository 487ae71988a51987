"""The fleet: its tasks do what they say, and running them again gives the experience that ships."""

import gzip
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.deployment.locations import resources_root
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.executions.sandbox.sql_worker import statements
from workshop.experience.__main__ import main
from workshop.experience.catalogue import FAMILIES
from workshop.experience.families import PLACEHOLDER, Bug, Cell, Family, block, bugs_of, fill
from workshop.experience.generate import LEARN, FleetError, generate, write_days
from workshop.experience.plan import AGENTS, REPAIRER, plan
from workshop.experience.rendering import CheckLine, Variant, learn_python, render
from workshop.experience.sql.databases import DATABASES
from workshop.experience.vocabulary import THINGS, javascript_literal, python_literal

EXPERIENCE = resources_root() / "experience"


def read(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl.gz"))
        for line in gzip.decompress(path.read_bytes()).decode().splitlines()
    ]


def comparable(line: dict[str, Any]) -> dict[str, Any]:
    """Everything but the duration, the envelope's version with what came with it, and where a kernel cut its output."""
    assert line.get("bullet_ids") is None  # version 3; the shipped lines are older
    line = {name: value for name, value in line.items() if name != "bullet_ids"}
    logs = {name: "".join(chunks) for name, chunks in json.loads(line["execution"]["logs"]).items()}
    return {**line, "schema_version": None, "duration_ms": None, "execution": {**line["execution"], "logs": logs}}


@pytest.fixture(scope="module")
def shipped() -> list[dict[str, Any]]:
    return read(EXPERIENCE / "e2b_logs")


@pytest.mark.extended
def test_five_tasks_per_domain_run_again_with_the_same_code_and_outputs(
    shipped: list[dict[str, Any]], tmp_path: Path
) -> None:
    sessions = plan(dict.fromkeys(DOMAINS, 5))
    generate(sessions, tmp_path, workers=1, report=lambda done, total: None)
    again, before = read(tmp_path / "e2b_logs"), {line["execution_id"]: line for line in shipped}
    assert len({line["sandbox_id"] for line in again}) == 5 * len(DOMAINS)
    for line in again:
        assert comparable(line) == comparable(before[line["execution_id"]])


def test_volume(shipped: list[dict[str, Any]]) -> None:
    """At least 250 tasks solved at the first attempt in each language's domain, and 250 repairs."""
    sessions = {session.sandbox_id: session.variant for session in plan()}
    solved = Counter(
        sessions[line["sandbox_id"]].family.domain for line in shipped if sessions[line["sandbox_id"]].bug is None
    )
    assert set(solved) == set(DOMAINS) - {Domain.DEBUG}
    assert min(solved.values()) >= 250
    assert sum(line["execution"]["error"] is not None for line in shipped) >= 250
    assert {line["sandbox_id"] for line in shipped} == set(sessions)
    assert sum(path.stat().st_size for path in EXPERIENCE.rglob("*") if path.is_file()) <= 3_000_000


def test_exactly_the_planned_failures_fail_and_are_repaired_next(shipped: list[dict[str, Any]]) -> None:
    repairs = {session.sandbox_id for session in plan() if session.variant.bug}
    by_session: dict[str, list[dict[str, Any]]] = {}
    for line in sorted(shipped, key=lambda line: line["timestamp"]):
        by_session.setdefault(line["sandbox_id"], []).append(line)
    for sandbox, lines in by_session.items():
        failed = [number for number, line in enumerate(lines) if line["execution"]["error"]]
        assert len(failed) == (sandbox in repairs)
        for number in failed:
            assert lines[number]["task"] == lines[number + 1]["task"]
            assert lines[number]["code"] != lines[number + 1]["code"]


def test_records_are_complete_portable_and_licensed(shipped: list[dict[str, Any]]) -> None:
    assert len({line["execution_id"] for line in shipped}) == len(shipped)
    assert {line["source"] for line in shipped} == {"capibara-fleet"}
    assert {line["licence"] for line in shipped} == {"MIT"}
    assert all(line["task"] and line["agent_id"] for line in shipped)
    text = "\n".join(json.dumps(line) for line in shipped)
    assert not re.search(r"/tmp/|/root/|\.venv|pyenv|/home/(?!user)", text)
    assert not any(own in text for own in (sys.prefix + "/", sys.base_prefix + "/lib", str(Path.home()) + "/."))
    assert not re.search(r" at 0x[0-9a-f]{6,}", text), "an address differs at every run"
    assert not PLACEHOLDER.search(re.sub(r"\\u[0-9a-f]{4}", "", "".join(line["task"] for line in shipped)))


def test_tasks_and_solutions_are_distinct(shipped: list[dict[str, Any]]) -> None:
    right = [line for line in shipped if not line["execution"]["error"]]
    assert len({line["code"] for line in right}) >= 0.97 * len(right)
    assert len({line["task"] for line in right}) >= 0.9 * len(right)


def test_playbooks_belong_to_the_fleets_agents(shipped: list[dict[str, Any]]) -> None:
    agents = {line["agent_id"] for line in shipped}
    assert agents == {*(name for names in AGENTS.values() for name in names), REPAIRER}
    assert agents == {path.name for path in (EXPERIENCE / "playbooks").iterdir()}


def test_a_plan_does_not_depend_on_what_else_is_planned() -> None:
    whole = {session.name: session for session in plan()}
    some = plan({Domain.SQL: 3, Domain.DEBUG: 2})
    assert len(some) == 5
    assert all(whole[session.name] == session for session in some)
    assert [session.start for session in some] == sorted(session.start for session in some)


def test_families_are_many_named_once_and_worded_twice() -> None:
    assert len({(family.domain, family.name) for family in FAMILIES}) == len(FAMILIES)
    counts = Counter(family.domain for family in FAMILIES)
    assert min(counts.values()) >= 40
    assert all(family.bugs for family in FAMILIES)
    assert sum(len(cell.statements) > 1 for family in FAMILIES for cell in family.cells) > 0.9 * len(FAMILIES)


def test_every_bug_is_in_the_code_it_breaks() -> None:
    for family in FAMILIES:
        code = family.cells[family.bug_cell].code
        for bug in family.bugs:
            assert code.count(bug.find) == 1, (family.name, bug.kind)
            assert bug.replace != bug.find


def variant_of(code: str, check: str, bug: Bug) -> Variant:
    family = Family("f", Domain.PYTHON, "python", (Cell("adds", block(code), block(check)),), bugs=(bug,))
    return Variant(family, 0, bug, seed=1, thing=0)


CODE, CHECK = "def add(a, b):\n    return a + b", "add(<<i>>, 1) ==>"


def test_a_failing_attempt_comes_before_its_repair() -> None:
    broken, fixed = render(variant_of(CODE, CHECK, Bug("sign", "a + b", "a - b")), LEARN)
    assert broken.fails
    assert not fixed.fails
    assert "return a - b" in broken.code
    assert re.search(r"assert add\((\d+), 1\) == \d+", fixed.code)


def test_a_bug_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="is in the code 0 times"):
        render(variant_of(CODE, CHECK, Bug("sign", "a * b", "a - b")), LEARN)


def test_a_bug_that_goes_unnoticed_stops_the_generator(tmp_path: Path) -> None:
    session = plan({Domain.PYTHON: 1})[0]
    harmless = variant_of(CODE, CHECK, Bug("none", "return a + b", "return b + a"))
    unnoticed = type(session)(harmless, "a", "i1", session.start)
    with pytest.raises(FleetError, match="should fail and does not"):
        generate([unnoticed], tmp_path, workers=1, report=lambda done, total: None)
    assert not list(tmp_path.rglob("*.gz"))


def test_learning_runs_statements_and_returns_literals() -> None:
    check = [CheckLine("box = [1]", False), CheckLine("box + ['a']", True), CheckLine("await later()", True)]
    assert learn_python(["async def later():\n    return {'k': (1,)}"], check) == ['[1, "a"]', '{"k": (1,)}']


def test_literals_are_source_text() -> None:
    value = {"name": 'it\'s "so"', "list": [1, 2.5, None, True], "pair": (1, "a")}
    assert eval(python_literal(value)) == value
    assert javascript_literal([{"crew_size": 2, "name": "x"}]) == '[{ crewSize: 2, name: "x" }]'


def test_fill_reports_an_unknown_placeholder() -> None:
    assert fill("<<a>> << 1", {"a": "<<b>>", "b": "x"}) == "x << 1"
    with pytest.raises(KeyError, match="missing"):
        fill("<<missing>>", {})


def test_databases_have_their_own_words_and_data() -> None:
    assert len({database.name for database in DATABASES}) == len(DATABASES) == 10
    for database in DATABASES:
        assert len(statements(database.script())) == 6
        assert database.script() == database.script()
    assert len(THINGS) >= 50


def test_the_same_lines_give_the_same_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    line = {"timestamp": "2026-10-03T01:00:00.000Z", "execution_id": "e", "code": "1"}
    (folder / "a.jsonl").write_text(json.dumps(line) + "\n")
    first = write_days(folder, tmp_path / "one")[0].read_bytes()
    assert write_days(folder, tmp_path / "two")[0].read_bytes() == first


def test_the_command_refuses_nonsense(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path), "--only", "cobol=3"]) == 2
    assert "--only cobol=3: expected DOMAIN=COUNT" in capsys.readouterr().err


def test_bug_lines_become_bugs() -> None:
    assert bugs_of([("k", "a", "b")]) == (Bug("k", "a", "b"),)
