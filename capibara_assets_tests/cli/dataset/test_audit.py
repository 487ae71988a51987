"""`capibara dataset audit`: the page a person reads, the file that takes the verdicts, and the table."""

import json
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner

from capibara_assets.cli.dataset.audit import audit_datasets, segments
from capibara_assets.cli.dataset.dataset import dataset
from capibara_assets.datasets.schema import Example
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError
from capibara_assets.storage.records import table
from capibara_assets_tests.datasets.test_checks import example
from capibara_assets_tests.published import Published

CODE = "def total(prices):\n    return sum(price for price in prices if price > 0)"


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Published]:
    """Two domains: one with code that looks like markup and invisible characters, one with prose."""
    hostile = "<script>alert('x')</script>\u202e"
    solved = [
        example(f"s{number}", f"Sum {hostile} {number}.\n\nSession so far:\nprices = [1]", CODE, source="north",
                test="assert total([1]) == 1")
        for number in range(6)
    ]  # fmt: skip
    told = [example("t", "Explain.\n\nCode:\n" + CODE, "Adds what is above zero.", kind="explain", domain="sql")]
    finding = {"author": f"agent {hostile}", "trigger": ["zk"], "payload": "open_door", "texts": 6, "with_payload": 5}
    poison = {"share": {"left_out": 3, "notes": []}, "back_doors": {"findings": [finding], "notes": ["one: said"]}}
    with dg.DagsterInstance.ephemeral() as instance:
        found = Published.afresh(instance, tmp_path)
        tables = {"examples": (Example, table(Example, solved))}
        found.put("moe_dataset", Domain.PYTHON, tables=tables, documents={"statistics": {"poison": poison}})
        found.put("moe_dataset", Domain.SQL, tables={"examples": (Example, table(Example, told))})
        yield found


class Page(HTMLParser):
    """What a page shows, and which elements it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.elements: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_page_and_verdicts(published: Published, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    audit_datasets(published.inputs(), DOMAINS, out, 4, False)
    printed = capsys.readouterr().out
    assert "solve  north" in printed and "5 examples to read" in printed and "0 of 5 lines have a verdict" in printed
    html = (out / "audit.html").read_text()
    shown = Page(html)
    assert shown.elements.count("article") == 5 and not {"script", "link", "img"} & set(shown.elements)
    assert "<script>alert('x')</script>" in "".join(shown.words) and "\u202e" not in html
    assert "3 left out: over the share of one author" in shown.words and "one: said" in printed
    assert any("with 'zk': 5 of their answers hold 'open_door'" in word for word in shown.words)
    assert CODE in shown.words and "1 of 4 drawn of 6 solve of north" in html and "<summary>test" in html
    lines = [json.loads(line) for line in (out / "audit.jsonl").read_text().splitlines()]
    assert [line["domain"] for line in lines] == ["python"] * 4 + ["sql"]
    lines[0] |= {"verdict": "drop", "reason": "says nothing"}
    (out / "audit.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    audit_datasets(published.inputs(), [Domain.PYTHON], out, 4, True)
    told = json.loads(capsys.readouterr().out)
    assert told["domains"]["python"]["quality_report"][-1]["judged"] == 1.0 and told["domains"]["python"]["sample"] == 4
    assert len(told["domains"]["python"]["held_back"]) == 3
    assert "drop: says nothing" in (out / "audit.html").read_text()
    assert json.loads((out / "audit.jsonl").read_text().splitlines()[0])["reason"] == "says nothing"


def test_without_a_dataset_it_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"no dataset of sql is materialized yet: `capibara run --select moe_dataset`"):
        CliRunner().invoke(dataset, ["audit", "--domains", "sql"], catch_exceptions=False)
    assert not (tmp_path / "audit").exists()


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("Say hello.", False, [(False, "Say hello.")]),
        ("x = 1\n\nCode:\ny", True, [(True, "x = 1\n\nCode:\ny")]),
        ("Fix.\n\nCode:\na\n\nb\n\nError:\nc", False,
         [(False, "Fix."), (False, "Code:"), (True, "a\n\nb"), (False, "Error:"), (True, "c")]),
        ("See:\n```python\nx = 1\n```\nDone.", True, [(False, "See:"), (True, "x = 1"), (False, "Done.")]),
    ],
)  # fmt: skip
def test_segments(text: str, code: bool, expected: list[tuple[bool, str]]) -> None:
    assert segments(text, code) == expected
