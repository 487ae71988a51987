"""What the fake cluster promises of Kubernetes, asked for by the real client: watches, versions, conflicts, logs."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3
from kubernetes import client, config, watch

from capibara_assets_tests.cluster.fake.api import Api
from capibara_assets_tests.cluster.fake.cluster import Cluster
from capibara_assets_tests.waiting import until

LONGEST_S = 60.0
PRINTS = "import sys, time\nfor n in range(4):\n    print('line', n, flush=True)\n    time.sleep(.05)\n"


class There:
    """A fake cluster and the real client's APIs."""

    def __init__(self, api: Api):
        self.api, self.cluster = api, api.cluster
        self.core, self.batch = client.CoreV1Api(), client.BatchV1Api()

    def make_pod(self, name: str, program: str = "", labels: dict[str, str] | None = None) -> Any:
        container = {"name": "main", "image": "i", "command": [sys.executable, "-c", program]}
        spec = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}
        return self.core.create_namespaced_pod("ml", {"metadata": {"name": name, "labels": labels}, "spec": spec})

    def make_job(self, name: str) -> Any:
        container = {"name": "main", "image": "i", "command": [sys.executable, "-c", "import time; time.sleep(60)"]}
        spec = {"restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}
        template = {"metadata": {"labels": {}}, "spec": spec}
        return self.batch.create_namespaced_job("ml", {"metadata": {"name": name}, "spec": {"template": template}})


@pytest.fixture
def there(tmp_path: Path) -> Iterator[There]:
    kubeconfig = tmp_path / "kubeconfig"
    api = Api(Cluster(tmp_path))
    with api.serving(kubeconfig):
        config.load_kube_config(str(kubeconfig))
        yield There(api)


def phases(there: There, version: str, until_deleted: bool = True) -> list[tuple[str, str]]:
    """Watch the pods from a version on; where the stream ends, from the last event on."""
    told: list[tuple[str, str]] = []
    deadline = time.monotonic() + LONGEST_S
    while time.monotonic() < deadline:
        with suppress(urllib3.exceptions.HTTPError):
            for event in watch.Watch().stream(
                there.core.list_namespaced_pod, "ml", resource_version=version, timeout_seconds=2
            ):
                found = event["object"]
                version = found.metadata.resource_version
                told.append((event["type"], found.status.phase))
                if event["type"] == "DELETED" or (not until_deleted and found.status.phase == "Succeeded"):
                    return told
    raise AssertionError(told)


def test_a_watch_tells_each_change_once_and_in_order_though_its_stream_is_cut(there: There) -> None:
    there.api.trouble.of = lambda method, path: "cut" if "watch" in path else None  # after each first event
    version = there.core.list_namespaced_pod("ml").metadata.resource_version

    def work() -> None:
        there.make_pod("a", "pass")
        until(lambda: there.cluster.names("Succeeded"))
        there.core.delete_namespaced_pod("a", "ml")

    doing = threading.Thread(target=work)
    doing.start()
    told = phases(there, version)
    doing.join()
    kinds, seen = [kind for kind, _ in told], [phase for _, phase in told]
    assert kinds[0] == "ADDED" and kinds[-1] == "DELETED" and set(kinds[1:-1]) == {"MODIFIED"}
    order = ["Pending", "Running", "Succeeded"]
    assert seen == sorted(seen, key=order.index) and seen[-1] == "Succeeded"
    assert {"Running", "Succeeded"} <= set(seen)  # a pod that is started at once was never seen waiting


def test_a_watch_of_what_is_forgotten_is_gone_and_a_new_list_goes_on(there: There) -> None:
    version = there.core.list_namespaced_pod("ml").metadata.resource_version or "0"
    there.make_pod("a", "pass")
    until(lambda: there.cluster.names("Succeeded"))
    there.cluster.history.forget()
    with pytest.raises(client.ApiException) as refused:
        list(watch.Watch().stream(there.core.list_namespaced_pod, "ml", resource_version="1", timeout_seconds=1))
    assert refused.value.status == 410 and version != "1"
    again = there.core.list_namespaced_pod("ml")
    there.core.delete_namespaced_pod("a", "ml")
    assert phases(there, again.metadata.resource_version)[-1][0] == "DELETED"


def test_a_list_comes_in_pages_until_its_version_is_forgotten(there: There) -> None:
    for name in ("a", "b", "c"):
        there.make_pod(name, "pass", {"of": "pages"})
    first = there.core.list_namespaced_pod("ml", limit=2, label_selector="of=pages")
    rest = there.core.list_namespaced_pod("ml", limit=2, _continue=first.metadata._continue)
    assert [one.metadata.name for one in (*first.items, *rest.items)] == ["a", "b", "c"]
    assert rest.metadata._continue is None
    there.make_pod("d", "pass")  # a change after the first list, however fast the others were
    until(lambda: len(there.cluster.names("Succeeded")) == 4)
    there.cluster.history.forget()
    with pytest.raises(client.ApiException) as refused:
        there.core.list_namespaced_pod("ml", limit=2, _continue=first.metadata._continue)
    assert refused.value.status == 410


def test_what_changed_since_it_was_read_is_not_replaced(there: There) -> None:
    there.make_job("a")
    until(lambda: there.cluster.names())
    read = there.batch.read_namespaced_job("a", "ml")
    read.metadata.annotations = {"by": "the first"}
    there.batch.replace_namespaced_job("a", "ml", read)
    read.metadata.annotations = {"by": "the second"}
    with pytest.raises(client.ApiException) as refused:
        there.batch.replace_namespaced_job("a", "ml", read)
    assert refused.value.status == 409
    assert there.batch.read_namespaced_job("a", "ml").metadata.annotations == {"by": "the first"}


def test_only_the_object_that_was_meant_is_deleted(there: There) -> None:
    former = there.make_job("a").metadata.uid
    there.batch.delete_namespaced_job("a", "ml", propagation_policy="Foreground")
    until(lambda: "a" not in there.cluster.jobs)
    there.make_job("a")
    options = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=former))
    with pytest.raises(client.ApiException) as refused:
        there.batch.delete_namespaced_job("a", "ml", body=options)
    assert refused.value.status == 409 and "a" in there.cluster.jobs


@pytest.mark.parametrize("policy", [None, "Background", "Foreground"])
def test_a_jobs_pods_stay_follow_or_go_first(there: There, policy: str | None) -> None:
    there.make_job("a")
    until(lambda: there.cluster.names())
    (pod,) = there.cluster.names()
    asked = {} if policy is None else {"propagation_policy": policy}
    there.batch.delete_namespaced_job("a", "ml", **asked)
    if policy == "Foreground":
        until(lambda: "a" not in there.cluster.jobs)
        assert not there.cluster.pods
    assert "a" not in there.cluster.jobs
    if policy is None:
        assert there.cluster.names() == [pod]
        there.core.delete_namespaced_pod(pod, "ml")
    until(lambda: not there.cluster.pods and not there.cluster.jobs)


def test_a_log_is_followed_to_its_end_with_the_time_of_each_line(there: There) -> None:
    there.make_pod("a", PRINTS)
    until(lambda: "a" in there.cluster.running)
    said = there.core.read_namespaced_pod_log("a", "ml", follow=True, timestamps=True, _preload_content=False).data
    stamps, lines = zip(*(line.split(" ", 1) for line in said.decode().splitlines()), strict=True)
    assert lines == tuple(f"line {n}" for n in range(4)) and list(stamps) == sorted(set(stamps))
    tail = there.core.read_namespaced_pod_log("a", "ml", tail_lines=1, _preload_content=False).data
    assert tail == b"line 3\n"


def test_a_finished_pod_that_is_deleted_early_takes_its_log_with_it(there: There) -> None:
    there.make_pod("a", PRINTS)
    until(lambda: there.cluster.names("Succeeded"))
    there.core.delete_namespaced_pod("a", "ml")
    until(lambda: "a" not in there.cluster.pods)
    with pytest.raises(client.ApiException) as refused:
        there.core.read_namespaced_pod_log("a", "ml")
    assert refused.value.status == 404
