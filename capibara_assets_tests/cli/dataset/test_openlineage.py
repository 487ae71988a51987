"""OpenLineage events through its own client: to a file and to a real HTTP server, the same again, nothing unsaid."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import dagster as dg
import pytest
import yaml
from click.testing import CliRunner, Result

from capibara_assets.cli.dataset.lineage import lineage
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.storage.removal import remove_artifact
from capibara_assets_tests.automation.notifications.conftest import Receiver, receiver
from capibara_assets_tests.late import late
from capibara_assets_tests.published import Published

__all__ = ["receiver"]
late("openlineage", reason="the extra `openlineage` is not installed")


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Published]:
    """A dataset of python, an adapter made of it, and no OpenLineage variable but the test's."""
    with dg.DagsterInstance.ephemeral() as instance:
        made = Published.afresh(instance, tmp_path)
        dataset = made.put("moe_dataset", Domain.PYTHON, documents={"examples": 1})
        upstream = {"moe_dataset|python": dataset.digest, "lora_config|python": ""}
        made.put("trained_adapters", Domain.PYTHON, documents={"summary": 1}, upstream=upstream)
        monkeypatch.setenv("CAPIBARA_STORE", made.store.root)
        monkeypatch.setenv("CAPIBARA_WORK", made.store.work)
        monkeypatch.chdir(tmp_path)
        yield made


def sent(published: Published, *options: str) -> Result:
    @contextmanager
    def opened(_: object) -> Iterator[dg.DagsterInstance]:
        yield published.instance

    with patch("capibara_assets.cli.graph.instance.open_instance", opened):
        return CliRunner().invoke(lineage, ["openlineage", *options], catch_exceptions=False)


def configured(folder: Path, monkeypatch: pytest.MonkeyPatch, **transport: object) -> None:
    (folder / "transport.yml").write_text(yaml.safe_dump({"transport": transport}))
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(folder / "transport.yml"))


def test_each_result_is_an_event_with_its_inputs_and_again_the_same(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "events.jsonl"
    configured(tmp_path, monkeypatch, type="file", log_file_path=str(file), append=True)
    assert sent(published).output == "2 events sent to OpenLineage (file)\n"
    sent(published, "--since", "1h", "--namespace", "capibara-local")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert events[:2] == events[2:]
    dataset, adapters = events[:2]
    assert (adapters["eventType"], adapters["job"]["name"]) == ("COMPLETE", "trained_adapters/python")
    (read,) = adapters["inputs"]
    assert (read["namespace"], read["name"]) == ("capibara-local", "moe_dataset/python")
    assert read["facets"]["version"] == dataset["outputs"][0]["facets"]["version"]
    assert str(tmp_path) not in file.read_text()
    assert sent(published, "--run", "another").output.startswith("0 events")
    remove_artifact(
        published.store.open(), "moe_dataset", "python", dataset["outputs"][0]["facets"]["version"]["datasetVersion"]
    )
    assert (
        sent(published).output.splitlines()[1] == "1 results are no longer in the store, and their events were not sent"
    )


def test_over_http_to_a_real_server_and_one_that_refuses(
    published: Published,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    receiver: Receiver,
):
    configured(tmp_path, monkeypatch, type="http", url=receiver.url.removesuffix("/hook/s3cret"))
    assert sent(published).output == "2 events sent to OpenLineage (http)\n"
    assert [one["job"]["name"] for one in receiver.got] == ["moe_dataset/python", "trained_adapters/python"]
    receiver.answers = [200, 400]
    with pytest.raises(InputError, match="1 of 2 events were sent, and the OpenLineage backend does not take the next"):
        sent(published)


def test_without_a_configuration_nothing_is_sent_and_that_is_said(published: Published):
    with pytest.raises(InputError, match="OpenLineage is not configured: set OPENLINEAGE_URL"):
        sent(published)
