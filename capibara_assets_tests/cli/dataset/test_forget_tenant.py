"""`capibara forget --tenant`: a tenant leaves, with its records, its name and whatever arrives of it later."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock, patch

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from capibara_assets.cli.dataset.forget import forget
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.lineage import forget as library
from capibara_assets.storage.cache import Cache
from capibara_assets.storage.digests import tree_digest
from capibara_assets.storage.store import ArtifactStore
from capibara_assets_tests.canary import CANARY, FAILED, MENDED, plant, singing, told
from capibara_assets_tests.home import MadeHome, command_here, make_inputs

pytestmark = pytest.mark.slow

TENANT = "kanarien-gmbh-4417"
WORDS = (CANARY, FAILED, MENDED, TENANT)
GRAPH = (
    "e2b_logs,ace_playbooks,e2b_executions,e2b_patterns,example_groups,consolidated_playbook,moe_dataset,"
    "routing_dataset"
)


def run(home: MadeHome) -> None:
    command_here(home.environment, "run", "--select", GRAPH, "--domains", "python")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> MadeHome:
    """Datasets with the canary, which belongs to a tenant, and records that belong to none."""
    home = MadeHome(tmp_path_factory.mktemp("tenant") / "made")
    make_inputs(home.folder, sandboxes=3)
    plant(home.folder / "experience" / "e2b_logs", TENANT)
    run(home)
    return home


@pytest.fixture
def home(pristine: MadeHome, tmp_path: Path) -> Iterator[MadeHome]:
    copy = pristine.copy(tmp_path / "made")
    with patch.dict(os.environ, copy.environment):
        yield copy


def invoked(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(forget, arguments, catch_exceptions=False)
    assert result.exit_code == code, result.output[-4000:]
    return result


def plant_around(home: MadeHome) -> None:
    """The tenant where runs leave it beside tables: journals, caches, logs, reports, half a result, events."""
    deployment = home.deployment
    note, quoted = f"agent a1 of tenant {TENANT}: 3 examples fewer", json.dumps({"answer": told()})
    files = {
        deployment.home / "dagster" / "logs" / "event.log": f"10:00 fine\n10:01 {note}\n",
        deployment.home / "report.html": f"<p>fine</p>\n<pre>{told()}</pre>\n<p>{note}</p>",
        deployment.home / "runs" / "1" / "record.json": json.dumps({"notes": [note], "code": told()}),
        deployment.work / "evaluation" / "python" / "journals" / "answers.jsonl": f"{quoted}\n",
        Path(deployment.store) / "staging" / "half" / "examples.json": quoted,
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    Cache(deployment.work / "replay" / "kept.sqlite", "verdicts").add({b"key": told().encode(), b"other": b"fine"})
    with open_instance(deployment) as instance:
        shown = dg.MetadataValue.md(f"|code|\n|---|\n|{told().splitlines()[0]}|\n{note}")
        instance.report_runless_asset_event(dg.AssetMaterialization("planted", metadata={"preview": shown}))


def later(home: MadeHome) -> None:
    """A new log of the tenant, with records that nobody has seen, and one of another tenant."""
    record = json.loads((home.folder / "experience" / "e2b_logs" / "canary.jsonl").read_text().splitlines()[1])
    text = json.dumps(record).replace(MENDED, f"{MENDED}-later").replace("2026-10-20", "2026-10-21")
    torn = text.replace("-later", "-torn")[:-9]
    other = text.replace(TENANT, "another tenant").replace(CANARY, "sparrow").replace(MENDED, "sparrow")
    lines = (text, torn, other)
    (home.folder / "experience" / "e2b_logs" / "later.jsonl").write_text("".join(f"{line}\n" for line in lines))


def test_a_tenant_is_forgotten_down_to_the_last_byte_and_stays_so(home: MadeHome) -> None:
    plant_around(home)
    planted = {path.split("/")[0] for path in singing(home.folder / "home", WORDS)}
    assert planted == {"store", "work", "dagster", "report.html", "runs"}
    report = json.loads(invoked("--tenant", TENANT, "--reason", "they left", "--json").stdout)
    assert (report["tenant"], report["forgotten"], report["left"]) == (TENANT, [FAILED, MENDED], [])
    assert report["failures"] == {} and report["quarantined"] == 2 and report["domains"] == ["python"]
    assert {one["file"] for one in report["sources"]} == {"e2b_logs/canary.jsonl", "e2b_logs/copy.jsonl.gz"}
    assert singing(home.folder / "home", WORDS) == []
    assert (home.folder / "home" / "dagster" / "logs" / "event.log").read_text().startswith("10:00 fine\n")

    later(home)  # beside the old logs, which nobody has deleted
    run(home)
    assert singing(home.folder / "home", WORDS) == []
    store = ArtifactStore(home.folder / "home" / "store", home.folder / "home" / "work")
    logs = store.latest("e2b_logs", None)
    assert logs is not None and "sparrow-later" in list(logs.frame("executions")["execution_id"])
    counted = dict(logs.frame("files").select("path", "forgotten").iter_rows())
    assert (counted["e2b_logs/canary.jsonl"], counted["e2b_logs/later.jsonl"]) == (2, 2)

    again = invoked("--tenant", TENANT).stdout
    assert f"tenant {TENANT} forgotten" in again and "removed from the store" not in again


def test_a_dry_run_changes_nothing_and_another_name_is_told_the_nearest(home: MadeHome) -> None:
    before = tree_digest(home.folder / "home" / "store"), tree_digest(home.folder / "home" / "work" / "e2b_logs")
    shown = invoked("--tenant", TENANT, "--dry-run").stdout
    assert f"tenant {TENANT} would be forgotten" in shown and f"would be forgotten: {FAILED}, {MENDED}" in shown
    result = CliRunner().invoke(forget, ["--tenant", "kanarien-gmbh-4471", "--dry-run"])
    assert f"did you mean {TENANT!r}?" in str(result.exception)
    assert "name EXECUTION_IDS or --tenant" in invoked(code=2).output
    assert before == (
        tree_digest(home.folder / "home" / "store"),
        tree_digest(home.folder / "home" / "work" / "e2b_logs"),
    )


@pytest.mark.extended  # of execution ids `test_forget.py` interrupts one in every run of the suite
def test_an_interrupted_one_goes_on(home: MadeHome) -> None:
    for step in ("purge_ledgers", "remove", "drop_lines"):
        with patch.object(library, step, Mock(side_effect=KeyboardInterrupt(step))):
            CliRunner().invoke(forget, ["--tenant", TENANT])
    report = json.loads(invoked("--tenant", TENANT, "--json").stdout)
    assert (report["forgotten_before"], report["left"]) == ([FAILED, MENDED], [])
    assert len(report["sources"]) == 4 and singing(home.folder / "home", WORDS) == []


def test_imported_examples_of_a_tenant_are_named_with_what_takes_them_out(home: MadeHome) -> None:
    chat = {"prompt": "Which lamp is lit?", "completion": "The lamp above the copper door is lit."}
    (home.folder / "chats.jsonl").write_text(json.dumps(chat) + "\n")
    file = str(home.folder / "chats.jsonl")
    command_here(home.environment, "dataset", "import", file, "--domain", "python", "--tenant", "importers ltd")
    report = json.loads(invoked("--tenant", "importers ltd", "--dry-run", "--json").stdout)
    [left] = report["left"]
    assert "1 imported lines of chats.jsonl in " in left and "`capibara dataset remove chats.jsonl --domain py" in left
    assert (report["forgotten"], report["removed"]) == ([], [])
    assert "NOT GONE: 1 imported lines of chats.jsonl" in invoked("--tenant", "importers ltd", code=1).stdout
    command_here(home.environment, "dataset", "remove", "chats.jsonl", "--domain", "python")
    left = json.loads(invoked("--tenant", "importers ltd", "--dry-run", "--json").stdout)["left"]
    assert ["1 imported lines of chats.jsonl" in one for one in left].count(True) == 1
    assert any("imported lines" in one and ": a former result" in one for one in left)


def test_datasets_with_imported_examples_of_a_tenant_are_named(home: MadeHome) -> None:
    """The examples train on after the file is gone from the imports."""
    chat = {"prompt": "Which lamp is lit?", "completion": "The lamp above the copper door is lit."}
    (home.folder / "chats.jsonl").write_text(json.dumps(chat) + "\n")
    file = str(home.folder / "chats.jsonl")
    command_here(home.environment, "dataset", "import", file, "--domain", "python", "--tenant", "importers ltd")
    run(home)
    command_here(home.environment, "dataset", "remove", "chats.jsonl", "--domain", "python")
    shown = json.loads(invoked("--tenant", "importers ltd", "--dry-run", "--json").stdout)["left"]
    assert [one for one in shown if "1 imported examples in " in one and "run it anew" in one]
    left = json.loads(invoked("--tenant", "importers ltd", "--json", code=1).stdout)["left"]  # made anew without it
    assert [one for one in left if "1 imported examples in " in one and "a former result" in one]
