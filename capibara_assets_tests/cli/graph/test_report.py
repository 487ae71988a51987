"""The report: figures taken from the artifacts that Dagster names, quarantined lines by domain, JSON and HTML."""

import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from capibara_assets.assets.inputs import Origin
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.cli.graph.report import build_report, figures_of, loss_matrix, print_table, table_of
from capibara_assets.cli.graph.report import report as command
from capibara_assets.cli.graph.report_examples import answered, chosen
from capibara_assets.cli.graph.report_page import write_html
from capibara_assets.cli.graph.run_record import (
    keep_figures,
    keep_record,
    kept_figures,
    latest_experience,
    latest_record,
)
from capibara_assets.datasets.schema import Example
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.evaluation.answering.answer import Answer
from capibara_assets.evaluation.decision_rule import DecisionRule
from capibara_assets.evaluation.grading.grade import Grade
from capibara_assets.evaluation.statistics.figures import as_document, figures
from capibara_assets.evaluation.statistics.scores import Score
from capibara_assets.executions.schema import Execution, Quarantined
from capibara_assets.storage.records import table
from capibara_assets_tests.datasets.conftest import run as execution
from capibara_assets_tests.datasets.test_checks import example
from capibara_assets_tests.published import Published, adapter_folder
from capibara_assets_tests.spoilt_files import put_in_place

PYTHON, SQL, ML = Domain.PYTHON, Domain.SQL, Domain.ML
RECORD: dict[str, Any] = {
    "started": "2026-11-20T08:00:00+00:00",
    "seconds": 61.5,
    "peak_memory_gib": 1.25,
    "profile": "demo",
    "experience": "/data/experience",
    "domains": {"python": 12.5, "sql": 30.0, "ml": 0.0},
    "current": 3,
    "failures": {},
}


def quarantined(number: int, text: str) -> Quarantined:
    return Quarantined(
        quarantine_id=f"q{number}",
        file="a.jsonl",
        line=number,
        offset=0,
        reason="missing:code",
        detail="expected code",
        text=text,
        digest=f"d{number}",
    )


def ledger(published: Published, *texts: str) -> None:
    rows = table(Quarantined, [quarantined(i, text) for i, text in enumerate(texts, start=1)])
    published.put("e2b_logs", tables={"quarantine": (Quarantined, rows)})


def executions(published: Published, domain: Domain, *sandboxes: str) -> None:
    rows = [execution(f"{domain}-{i}", "1", sandbox=sandbox) for i, sandbox in enumerate(sandboxes)]
    published.put("e2b_executions", domain, tables={"executions": (Execution, table(Execution, rows))})


def evaluated(
    published: Published, domain: Domain, verdict: str = "promote", passed: dict[str, str] | None = None, **means: float
) -> None:
    """An evaluation with these mean losses; `passed` has a 1 or 0 for each graded item of a contender."""
    rows = [
        Score(
            metric="pass@1",
            contender=name,
            item_id=f"i{i}",
            group_id=f"g{i}",
            score=float(one),
            weight=1.0,
            kind="solve",
        )
        for name, items in (passed or {}).items()
        for i, one in enumerate(items)
    ]
    scores = table(Score, rows)
    found, comparisons = figures(scores, DecisionRule(resamples=1_000), list(passed or {}), ["base"])
    decided = {"verdict": verdict, "reason": "…"}
    documents = {"means": means, "decision": decided, "metrics": as_document(found, comparisons)}
    published.put("evaluation", domain, tables={"scores": (Score, scores)}, documents=documents)


def agreed(published: Published, domain: Domain, *rejected: str) -> None:
    voters = [
        {"name": f"voter-{i}", "accepted": f"voter-{i}" not in rejected, "reason": f"why {i}", "digest": "0" * 64}
        for i in range(4)
    ]
    published.put("consensus_checkpoint", domain, documents={"certificate": {"voters": voters}})


def report(published: Published, **changes: Any) -> dict[str, Any]:
    return build_report(published.instance, published.store.open(), {**RECORD, **changes})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    """Two domains from end to end, a third with nothing; only read."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield from_end_to_end(Published.afresh(instance, tmp_path_factory.mktemp("whole")))


def from_end_to_end(published: Published) -> Published:
    ledger(published, '{"sandbox_id": "s1", "language": "python"}', "\x00\x01 damaged")
    executions(published, PYTHON, "s1", "s1", "s2")
    executions(published, SQL, "s9")
    rows = [example(f"x{i}", f"task {i}") for i in range(5)]
    published.put("moe_dataset", PYTHON, tables={"examples": (Example, table(Example, rows))})
    agreed(published, PYTHON, "voter-2")
    agreed(published, SQL)
    evaluated(
        published,
        PYTHON,
        passed={"base": "0100", "consensus": "0111", "voter-0": "1111"},
        **{"base": 2.0, "playbook": 1.8, "consensus": 1.0, "expert:sql": 1.9, "merged": 1.2, "voter-0": 1.1},
    )
    evaluated(published, SQL, "reject", **{"base": 3.0, "consensus": 2.9, "expert:python": 3.1, "merged": 2.95})
    published.put(
        "promoted_model",
        documents={"promotion": {"domains": {"python": {"verdict": "promote", "reason": "Better."}}}},
    )
    return published


# --- quarantined lines -----------------------------------------------------------------------------------------------


def test_quarantined_lines_belong_to_the_domains_of_their_sandbox(published: Published):
    ledger(
        published,
        '{"sandbox_id": "s1", "code": null}',
        '{"sandbox_id" : "s1"}',
        '{"code": 3, "sandbox_id":\t"s2", "x": {',  # cut off, but the name is readable
        '{"sandbox_id": "elsewhere"}',
        "not even json",
        "",
    )
    executions(published, PYTHON, "s1", "s1")
    executions(published, SQL, "s1", "s2")
    found = report(published)
    counted = {name: domain["quarantined"] for name, domain in found["domains"].items()}
    assert counted == {"python": 2, "sql": 3, "ml": 0}  # s1 worked in both
    assert found["quarantined"] == 6


def test_a_sandbox_named_within_the_code_is_not_the_lines_own(published: Published):
    """The first name in the line counts; a quoted one inside its code is escaped, so it never matches."""
    ledger(published, json.dumps({"code": json.dumps({"sandbox_id": "s2"}), "sandbox_id": "s1"}))
    executions(published, PYTHON, "s1")
    executions(published, SQL, "s2")
    domains = report(published)["domains"]
    assert (domains["python"]["quarantined"], domains["sql"]["quarantined"]) == (1, 0)


def test_without_a_ledger_nothing_is_quarantined(published: Published):
    found = report(published)
    assert found["quarantined"] == 0 and all(domain["quarantined"] == 0 for domain in found["domains"].values())


# --- the document ----------------------------------------------------------------------------------------------------


def test_the_document(whole: Published):
    found = report(whole)
    assert set(found) == (
        set(RECORD)
        | {"quarantined", "not_read", "domains", "loss_matrix", "promotion"}
        | {"checkpoints", "read", "examples", "before"}
    )
    assert found["seconds"] == 61.5 and found["peak_memory_gib"] == 1.25
    assert found["domains"]["python"] == {
        "executions": 3,
        "left_out": {},
        "splits": {},
        "quarantined": 1,
        "examples": 5,
        "base_loss": 2.0,
        "playbook_loss": 1.8,
        "consensus_loss": 1.0,
        "merged_loss": 1.2,
        "pass_at_1": {
            "pass@1": {
                "base": 0.25,
                "consensus": 0.75,
                "gain": 0.5,
                "low": pytest.approx(-0.1, abs=0.25),
                "high": pytest.approx(0.85, abs=0.15),
                "items": 4,
                "groups": 4,
            }
        },
        "gain": {
            "metric": "pass@1",
            "estimate": 0.5,
            "low": pytest.approx(-0.1, abs=0.25),
            "high": pytest.approx(0.85, abs=0.15),
            "items": 4,
        },
        "voters": [{"name": f"voter-{i}", "accepted": i != 2, "reason": f"why {i}"} for i in range(4)],
        "verdict": "promote",
        "reason": "…",
        "answered": {"gained": 0, "lost": 0, "both": 0, "neither": 0},
        "seconds": 12.5,
    }
    assert found["domains"]["sql"]["pass_at_1"] == {} and found["domains"]["sql"]["playbook_loss"] is None
    assert found["domains"]["sql"]["verdict"] == "reject"
    assert found["promotion"]["python"]["verdict"] == "promote"
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_checkpoints_are_named_as_other_commands_name_them(published: Published, tmp_path: Path):
    trees = {name: adapter_folder(tmp_path / name, seed) for seed, name in enumerate(("voter-0", "voter-1", "agreed"))}
    described = published.inputs().checkpointed
    voters = published.put(
        "trained_adapters",
        PYTHON,
        trees={f"voters/{name}": trees[name] for name in ("voter-0", "voter-1")},
        checkpoints={f"voters/{name}": described(name, Origin({}, "b")) for name in ("voter-0", "voter-1")},
    ).checkpoints
    agreed = published.put(
        "consensus_checkpoint",
        PYTHON,
        documents={"certificate": {"voters": []}},
        trees={"adapter": trees["agreed"]},
        checkpoints={"adapter": described("c", Origin({}, "b"))},
    ).checkpoints
    assert report(published)["checkpoints"] == {
        "python/voter-0": voters["voters/voter-0"],
        "python/voter-1": voters["voters/voter-1"],
        "python/consensus": agreed["adapter"],
    }


def test_a_domain_with_nothing_is_zeros_and_nulls(whole: Published):
    empty = report(whole)["domains"]["ml"]
    assert (empty["executions"], empty["examples"], empty["quarantined"], empty["voters"]) == (0, 0, 0, [])
    assert all(empty[f"{name}_loss"] is None for name in ("base", "playbook", "consensus", "merged"))
    assert empty["verdict"] is None


def test_only_the_domains_of_the_run_are_reported(whole: Published):
    assert set(report(whole, domains={"sql": 1.0})["domains"]) == {"sql"}


def test_the_latest_evaluation_counts(published: Published):
    evaluated(published, PYTHON, "promote", base=2.0, consensus=1.0)
    evaluated(published, PYTHON, "inconclusive", base=2.0, consensus=1.75)
    found = report(published)
    assert found["domains"]["python"]["consensus_loss"] == 1.75 == found["loss_matrix"]["python"]["python"]
    assert found["domains"]["python"]["verdict"] == "inconclusive"


def test_the_loss_matrix_is_expert_by_test_domain(whole: Published):
    expected = {"python": {"python": 1.0, "sql": 3.1}, "sql": {"python": 1.9, "sql": 2.9}}
    assert loss_matrix(whole.inputs()) == expected == report(whole)["loss_matrix"]


def test_without_an_evaluation_the_matrix_is_empty(published: Published):
    assert loss_matrix(published.inputs()) == {}


# --- how it is shown -------------------------------------------------------------------------------------------------


def test_the_table_counts_voters(whole: Published):
    frame = table_of(report(whole)).set_index("domain")
    assert frame.loc["python", "voters +/-"] == "3/1" and frame.loc["sql", "voters +/-"] == "4/0"
    assert frame.loc["ml", "verdict"] == "–" and frame.loc["python", "consensus"] == 1.0


def test_the_terminal_shows_every_figure(whole: Published, capsys: pytest.CaptureFixture[str]):
    print_table(report(whole))
    shown = capsys.readouterr().out
    assert re.search(
        r"python +3 +1 +5 +2\.000 +1\.800 +1\.000 +1\.200 +"
        r"0\.25 → 0\.75 of 4 \([+-][\d.]+ to [+-][\d.]+\) +– +3/1 +promote",
        shown,
    ), shown
    assert re.search(r"sql +1\.900 +2\.900", shown)
    assert "62 s, peak memory 1.25 GiB, 2 lines quarantined in all" in shown


class Page(HTMLParser):
    """Tags, references and text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.words = ""
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]

    def handle_data(self, data: str) -> None:
        self.words += data


def test_the_page_shows_the_figures_and_refers_to_nothing_outside(whole: Published, tmp_path: Path):
    page = Page(write_html(report(whole), tmp_path / "new" / "report.html"))
    assert not page.references and "script" not in page.tags and "svg" in page.tags
    for words in ("voter-2", "why 2", "1.200", "3.100", "Better.", "2 lines quarantined", "25% → 75% of 4 tasks"):
        assert words in page.words, words


def test_what_a_failure_says_is_text_never_markup(whole: Published, tmp_path: Path):
    messages = {"moe_dataset[sql]": "expected <class 'int'> & got <script>alert(1)</script>"}
    page = Page(write_html(report(whole, failures=messages), tmp_path / "report.html"))
    assert "moe_dataset[sql]: expected <class 'int'> & got <script>alert(1)</script>" in page.words
    assert "script" not in page.tags


def test_a_failure_is_named_as_it_is(whole: Published, tmp_path: Path):
    page = Page(write_html(report(whole, failures={"a&b[sql]": "x"}), tmp_path / "report.html"))
    assert "a&b[sql]: x" in page.words


def test_a_page_before_any_evaluation(published: Published, tmp_path: Path):
    page = Page(write_html(report(published), tmp_path / "report.html"))
    assert "python" in page.words


def test_nothing_is_read_but_what_dagster_names(published: Published):
    """A result that was published by a step that died before it could say so is not reported."""
    executions(published, PYTHON, "s1", "s1", "s2")
    orphan = table(Execution, [execution(f"o{i}", "1") for i in range(50)])
    published.inputs().publish("e2b_executions", PYTHON, tables={"executions": (Execution, orphan)})
    assert report(published)["domains"]["python"]["executions"] == 3


def test_an_arm_that_no_domain_has_is_a_dash(capsys: pytest.CaptureFixture[str]):
    """No bullet graduated anywhere: the whole column is missing."""
    losses = {"base_loss": 2.0, "playbook_loss": None, "consensus_loss": 1.0, "merged_loss": 1.5, "pass_at_1": {}}
    row = {"executions": 1, "quarantined": 0, "examples": 1, **losses, "voters": [], "verdict": None, "seconds": 1.0}
    print_table(
        {
            **RECORD,
            "quarantined": 0,
            "not_read": {"said": ""},
            "loss_matrix": {},
            "checkpoints": {},
            "domains": {"python": row},
        }
    )
    assert "None" not in (printed := capsys.readouterr().out) and "–" in printed
    assert re.search(r"python .* 1$", printed, re.MULTILINE), "a domain's seconds are whole"


# --- the run before --------------------------------------------------------------------------------------------------


def test_the_run_before_stands_beside_each_domain(published: Published, tmp_path: Path):
    evaluated(published, PYTHON, "inconclusive", passed={"base": "0100", "consensus": "0110"}, base=2.0, consensus=1.5)
    first = json.loads(json.dumps(figures_of(report(published, domains={"python": 1.0}))))
    evaluated(published, PYTHON, "promote", passed={"base": "0100", "consensus": "0111"}, base=2.0, consensus=1.25)
    now = {"started": "2026-11-21T08:00:00+00:00", "domains": {"python": 1.0, "sql": 1.0}}
    both = build_report(published.instance, published.store.open(), {**RECORD, **now}, first)
    words = Page(write_html(both, tmp_path / "report.html")).words
    assert "was not decided, gain +25.0 points, loss was 1.500" in words and "not in the run before" in words
    assert "The run before was that of 2026-11-20 08:00 UTC; it took 1:02 min." in words
    same = build_report(published.instance, published.store.open(), {**RECORD, **now}, figures_of(both))
    assert Page(write_html(same, tmp_path / "same.html")).words.count("as before") == 2


def test_the_latest_figures_become_those_of_the_run_before(tmp_path: Path):
    deployment = Deployment.from_environment({"CAPIBARA_HOME": str(tmp_path)})
    assert kept_figures(deployment) is None
    for started in ("one", "two", "two"):  # written twice: still the same run
        keep_figures(deployment, {"started": started, "domains": {}})
    before, latest = kept_figures(deployment), kept_figures(deployment, "figures")
    assert before == {"started": "one", "domains": {}} and latest == {"started": "two", "domains": {}}


@pytest.mark.parametrize("damage", ["cut", "a pipe", "a device", "[]", "{}"])
def test_a_damaged_record_of_a_run_is_told(tmp_path: Path, damage: str):
    deployment = Deployment.from_environment({"CAPIBARA_HOME": str(tmp_path)})
    with pytest.raises(InputError, match="no run yet"):
        latest_record(deployment)
    keep_record(deployment, RECORD)
    assert latest_record(deployment) == RECORD and latest_experience(deployment) == Path(RECORD["experience"])
    file = tmp_path / "runs" / "latest.json"
    put_in_place(file, file.read_text()[:40] if damage == "cut" else damage)
    for read in (latest_record, latest_experience):
        with pytest.raises(IntegrityError, match=r"latest\.json .*; remove it: the next `capibara run` writes it anew"):
            read(deployment)


def test_a_history_that_was_emptied_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path))
    monkeypatch.setenv("DAGSTER_HOME", "")
    deployment = Deployment.from_environment()
    keep_record(deployment, RECORD)
    told = CliRunner().invoke(command, ["--json"]).exception
    assert isinstance(told, IntegrityError) and "is empty, though a run was recorded on 2026-11-20" in str(told)
    with open_instance(deployment) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization("planted"))
    assert CliRunner().invoke(command, ["--json"], catch_exceptions=False).exit_code == 0


# --- tasks answered by both ------------------------------------------------------------------------------------------


def answers_of(published: Published, **verdicts: str) -> None:
    """An evaluation in python whose items have these verdicts, `p` or `f`, of base and then consensus."""
    rows = [example(name, f"please solve {name}", split="test") for name in verdicts]
    dataset = published.put("moe_dataset", PYTHON, tables={"examples": (Example, table(Example, rows))})
    told = {"p": "passed", "f": "failed", "u": "ungraded"}
    answers, grades = [], []
    for name, pair in verdicts.items():
        for contender, letter in zip(("base", "consensus"), pair, strict=True):
            key: dict[str, Any] = {"contender": contender, "item_id": name, "sample": 0}
            answers.append(Answer(**key, text=f"<b>{contender} on {name}", tokens=1, finish="stop"))
            grades.append(Grade(**key, verdict=told[letter], detail="", isolation=""))
    published.put(
        "evaluation",
        PYTHON,
        tables={"answers": (Answer, table(Answer, answers)), "grades": (Grade, table(Grade, grades))},
        documents={
            "means": {},
            "decision": {"verdict": "promote", "reason": "…"},
            "metrics": {"figures": {}, "comparisons": []},
        },
        upstream={"moe_dataset|python": dataset.digest},
    )


def test_what_base_and_consensus_answered_stands_side_by_side(published: Published, tmp_path: Path):
    answers_of(published, a="ff", b="fp", c="pf", d="pp", e="fp", g="uf", h="fp")
    found = report(published, domains={"python": 1.0})
    assert found["domains"]["python"]["answered"] == {"gained": 3, "lost": 1, "both": 1, "neither": 1}
    assert [one["change"] for one in found["examples"]] == ["gained", "gained", "lost"], "a loss is not hidden"
    page = Page(write_html(found, tmp_path / "report.html"))
    assert "the consensus alone solved 3, the base alone 1, both 1 and neither 1" in page.words
    assert "please solve b" in page.words and "<b>consensus on b" in page.words and "<b>base on c" in page.words


def test_examples_take_turns_among_the_domains():
    tasks = {d: [{"domain": d, "change": "gained"} for _ in range(5)] for d in ("python", "sql", "ml")}
    assert [one["domain"] for one in chosen(tasks)] == ["python", "sql", "ml"]
    assert chosen({}) == [] == chosen({"python": []})
    neither: list[dict[str, Any]] = [{"domain": "ml", "change": "neither"}]
    assert chosen({"python": [], "ml": neither}) == neither


def test_without_the_dataset_that_was_read_no_task_is_shown(published: Published):
    answers_of(published, a="fp")
    for path in Path(published.store.root).rglob("moe_dataset"):
        shutil.rmtree(path)
    assert answered(published.inputs(), PYTHON, published.inputs().available("evaluation", PYTHON)) == []
