"""`capibara secrets`, and the gates before it: what one session told is found in whatever a deployment keeps."""

import gzip
import json
import shutil
import zipfile
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner, Result

from capibara_assets.checkpoints.artifacts import checkpoints_of
from capibara_assets.cli.dataset.secrets import require_clean, secrets
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.cli.graph.run import run
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError
from capibara_assets.resources import Store
from capibara_assets.storage.cache import Cache
from capibara_assets_tests.canary import singing
from capibara_assets_tests.cluster.postgres import postgres
from capibara_assets_tests.executions.conftest import envelope, executed, line

pytestmark = pytest.mark.slow

VALUE = "kT9x2LmQ8vR4wZ7p"
PLAYBOOK = (
    f"## STRATEGIES & INSIGHTS\n[str-00001] helpful=3 harmful=0 :: Begin with row {VALUE} where two tables differ\n"
)


@pytest.fixture(scope="module")
def experience(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions, of which one tells what the other holds bare, and a playbook that quotes it."""
    experience = tmp_path_factory.mktemp("told") / "experience"
    (experience / "e2b_logs").mkdir(parents=True)
    (experience / "playbooks").mkdir()
    tells = envelope(f'api_key = "{VALUE}"', execution_id="tells", sandbox_id="one")
    bare = envelope(
        "f(2)", execution_id="bare", sandbox_id="two", task=f"Row {VALUE} differs", execution=executed(f"{VALUE}\n")
    )
    (experience / "e2b_logs" / "a.jsonl").write_bytes(line(bare) + b"\n" + line(tells) + b"\n")
    (experience / "playbooks" / "ana.txt").write_text(PLAYBOOK)
    return experience


def enter(monkeypatch: pytest.MonkeyPatch, home: Path, experience: Path) -> None:
    """This process's environment names a deployment."""
    for name, value in {"HOME": home, "EXPERIENCE": experience}.items():
        monkeypatch.setenv(f"CAPIBARA_{name}", str(value))
    monkeypatch.setenv("DAGSTER_HOME", "")


@pytest.fixture(scope="module")
def home_with_logs(experience: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that has read the logs and nothing else, to be copied."""
    home = tmp_path_factory.mktemp("logs") / "home"
    with pytest.MonkeyPatch.context() as patch:
        enter(patch, home, experience)
        invoke(run, "--select", "e2b_logs")
    return home


@pytest.fixture
def deployment(experience: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """It has read nothing yet."""
    enter(monkeypatch, tmp_path / "home", experience)
    return Deployment.from_environment()


@pytest.fixture
def with_logs(home_with_logs: Path, deployment: Deployment) -> Deployment:
    """It has read the logs."""
    shutil.copytree(home_with_logs, deployment.home)
    return deployment


def invoke(command: object, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)  # type: ignore[arg-type]
    assert result.exit_code == code, result.output
    assert VALUE not in result.output
    return result


def left(*arguments: str, code: int = 1) -> list[str]:
    found: list[str] = json.loads(invoke(secrets, "--json", *arguments, code=code).stdout)["left"]
    return found


def test_no_byte_of_it_is_in_the_home_where_the_logs_are_read_first(with_logs: Deployment) -> None:
    deployment = with_logs
    invoke(run, "--select", "ace_playbooks")
    assert singing(deployment.home, (VALUE,)) == [] == left(code=0)
    [table] = (deployment.home / "store" / "artifacts" / "ace_playbooks").rglob("bullets.parquet")
    assert singing(table.parent, ("<SECRET:0>",)) == ["bullets.parquet"]
    require_clean(deployment)


def test_where_the_playbook_was_read_first_it_is_named_and_read_again(deployment: Deployment) -> None:
    invoke(run, "--select", "ace_playbooks")
    invoke(run, "--select", "e2b_logs")
    found = left()
    assert any("ace_playbooks" in one for one in found) and any("/dagster/" in one for one in found)
    invoke(run, "--select", "ace_playbooks")
    books = deployment.home / "store" / "artifacts" / "ace_playbooks" / "_"
    latest = json.loads((books / "latest.json").read_bytes())["digest"]
    assert singing(books / latest, (VALUE,)) == [] != singing(books, (VALUE,))


def plant(deployment: Deployment) -> dict[str, str]:
    """Where a value may come up again; file, from the home on -> what is planted."""
    home, work = deployment.home, deployment.work
    quoted = json.dumps({"error": f"ValueError: bad\n{VALUE}\n"})
    (home / "dagster" / "storage" / "run" / "compute_logs").mkdir(parents=True)
    (home / "dagster" / "storage" / "run" / "compute_logs" / "a.out").write_text(f"fine\nkey={VALUE}\n")
    (home / "report.html").write_text(f"<p>https://me:{VALUE}@host/x</p>")
    (work / "journals").mkdir(parents=True, exist_ok=True)
    (work / "journals" / "answers.jsonl").write_text(f"{quoted}\n")
    (work / "events.log.gz").write_bytes(gzip.compress(quoted.encode()))
    Cache(work / "kept.sqlite", "answers").add({b"k": quoted.encode()})
    with zipfile.ZipFile(home / "backup.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("old/report.html", f"token {VALUE}")
    store = Store(root=deployment.store, work=str(work)).open()
    with open_instance(deployment) as instance:
        told = {"why": f"step failed: {VALUE}", "table": dg.MetadataValue.json({"cell": [VALUE]})}
        instance.report_runless_asset_event(dg.AssetMaterialization("planted", metadata=told))
    import torch

    checkpoints_of(store).save(
        {"w": torch.zeros(4)}, 1, "python/mine", files={"samples.txt": f"the key is {VALUE}".encode()}
    )
    return {
        "dagster": "captured output and an event's metadata",
        "report.html": "a report",
        "work/journals/answers.jsonl": "a journal",
        "work/events.log.gz": "a log",
        "work/kept.sqlite": "a cache",
        "backup.zip": "a backup",
        "checkpoint python/mine@v1": "a checkpoint's file",
    }


def test_every_place_in_which_it_comes_up_again_is_found_and_history_is_cleaned(with_logs: Deployment) -> None:
    deployment = with_logs
    assert left(code=0) == []
    planted = plant(deployment)
    found = left()
    assert {name for name in planted if any(name in one for one in found)} == set(planted)
    assert all("SECRET" in one for one in found if not one.startswith("checkpoint"))
    assert sum("/dagster/" in one for one in found) >= 2, "the database and the captured output"
    with pytest.raises(InputError, match=r"place\(s\) hold a secret that was redacted in the logs"):
        require_clean(deployment)

    after = left("--clean")
    assert not any("/dagster/" in one or "report.html" in one for one in after) and len(after) == len(planted) - 2
    captured = deployment.home / "dagster" / "storage" / "run" / "compute_logs" / "a.out"
    assert captured.read_text() == "fine\n(removed: a secret)\n"
    with open_instance(deployment) as instance:
        records = instance.fetch_materializations(dg.AssetKey("planted"), limit=1).records
        assert records[0].asset_materialization is not None, "Dagster still reads its history"


def test_what_no_log_held_is_found_by_its_providers_shape(with_logs: Deployment) -> None:
    """Captured output of a process, a note, a copy: no reader passed there."""
    deployment = with_logs
    token, example = "ghp" + "_q7RzT2mXc9LwVb4KpN8dHs3YfJ6gAe1UoWi0", "AKIA" + "IOSFODNN7EXAMPLE"
    (deployment.work / "captured.log").write_text(f"key: {example}\ndigest: {'0f' * 20}\n")
    assert left(code=0) == [], "the example of AWS's documentation, and a digest"
    (deployment.work / "captured.log").write_text(f"Authorization: Bearer {token}\n")
    assert [one.rpartition("/")[2] for one in left()] == ["captured.log (GITHUB_TOKEN)"]
    with pytest.raises(InputError, match="or has a provider's shape, so nothing was exported"):
        require_clean(deployment)


@pytest.mark.extended
def test_dagsters_history_in_postgres_is_searched_and_cleaned(
    with_logs: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = with_logs
    (deployment.home / "dagster" / "dagster.yaml").unlink()
    (deployment.home / "deployment.yaml").write_text("storage: {history: postgres}\n")
    monkeypatch.setenv("CAPIBARA_DEPLOYMENT", str(deployment.home / "deployment.yaml"))
    with postgres() as server:
        for name, value in server.items():
            monkeypatch.setenv(name, value)
        with open_instance(Deployment.from_environment()) as instance:
            instance.run_storage.set_cursor_values({"sensor": f"read {VALUE} last"})
        assert [one for one in left() if "dagster/" not in one] == ["Dagster's history: kvs.value (SECRET)"]
        assert left("--clean", code=0) == []
        with open_instance(Deployment.from_environment()) as instance:
            assert instance.run_storage.get_cursor_values({"sensor"}) == {"sensor": "(removed: a secret)"}


def test_nothing_is_exported_while_a_file_holds_one(with_logs: Deployment) -> None:
    from capibara_assets.cli.serving import promote as promoting

    deployment = with_logs
    (deployment.home / "report.html").write_text(VALUE)
    with pytest.raises(InputError, match="so nothing was exported"):
        CliRunner().invoke(promoting.promote, ["--export", str(deployment.home / "out")], catch_exceptions=False)
    (deployment.home / "report.html").unlink()
    with pytest.raises(InputError, match="nothing is promoted"):
        CliRunner().invoke(promoting.promote, ["--export", str(deployment.home / "out")], catch_exceptions=False)
