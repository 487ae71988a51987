"""What a launch deletes is what it made or took over, and nothing that has the same name since then."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.launching.cluster import Cluster
from capibara_assets.launching.manifests import PodSettings, training_objects
from capibara_assets_tests.cluster.launched import STAYS, WAITS, Launched, launched, stub_request


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    with launched(tmp_path, monkeypatch) as one:
        yield one


@pytest.fixture
def body(there: Launched) -> dict[str, Any]:
    """A Job whose pod waits."""
    pods = PodSettings("registry.example/capibara:1", volume_claim="work", volume_path=str(there.folder))
    (job,) = training_objects(stub_request(there.folder / "a", steps=100_000), STAYS, pods).trained
    return job


@pytest.fixture
def cluster(there: Launched) -> Cluster:
    return Cluster("ml", WAITS)


def uid_of(there: Launched, body: dict[str, Any]) -> str | None:
    with there.cluster.lock:
        found = there.cluster.jobs.get(body["metadata"]["name"])
        return None if found is None else str(found["metadata"]["uid"])


def replaced(there: Launched, body: dict[str, Any]) -> None:
    """Somebody deletes the job and makes it again, before anybody looks."""
    with there.cluster.lock:
        there.cluster.delete("Job", body["metadata"]["name"], "Background")
        there.cluster.create(body, "Job", "ml")


def test_a_job_that_was_made_again_under_the_name_is_left_alone(
    there: Launched, body: dict[str, Any], cluster: Cluster
) -> None:
    own = cluster.submit(body)
    assert own == cluster.submit(body) == uid_of(there, body)  # taken over
    replaced(there, body)
    others = uid_of(there, body)
    assert others not in (None, own)
    cluster.delete(body, own)
    assert uid_of(there, body) == others
    cluster.delete(body, others)
    assert uid_of(there, body) is None


def test_one_that_is_replaced_between_the_look_and_the_deletion_is_left_alone(
    there: Launched, body: dict[str, Any], cluster: Cluster
) -> None:
    own, struck = cluster.submit(body), list[str]()

    def strike(method: str, path: str) -> None:
        if method == "DELETE" and not struck:
            struck.append(path)
            replaced(there, body)

    there.api.trouble.of = strike
    cluster.delete(body, own)
    assert struck and uid_of(there, body) not in (None, own)
    there.api.trouble.of = lambda method, path: None
    cluster.delete(body, uid_of(there, body))


def test_an_interrupted_submission_deletes_what_it_made_and_nothing_of_another_kind(
    there: Launched, body: dict[str, Any], cluster: Cluster
) -> None:
    cluster.submit(body)
    other = {**body, "metadata": {**body["metadata"], "annotations": {"capibara/spec": "of something else"}}}
    cluster.delete(other)
    assert uid_of(there, body) is not None
    cluster.delete(body)
    assert uid_of(there, body) is None
