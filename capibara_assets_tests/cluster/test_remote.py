"""Launches on a fake cluster through the real client: one fault each, and what becomes of the training."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from capibara_assets.launching.manifests import object_name
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.options import Option
from capibara_assets.processes.background import Jobs, stop
from capibara_assets_tests.cluster import stub_training
from capibara_assets_tests.cluster.fake.cluster import Faults
from capibara_assets_tests.cluster.launched import SECRET, SPOT, STAYS, WAITS, Launched, launched, stub_request


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    with launched(tmp_path, monkeypatch) as one:
        yield one


def test_a_training_runs_in_a_pod_and_leaves_nothing_there(there: Launched, tmp_path: Path) -> None:
    request = stub_request(tmp_path / "a")
    assert there.launch(request)[0] == "h100-8"
    there.assert_whole(request)
    there.assert_nothing_left()
    assert any("attempt 1 goes on at step 0" in line for line in there.lines)  # through the file on the volume
    (job,) = Jobs(tmp_path / "home").all()
    assert job.state == "finished" and job.pod is not None and job.pod.owner == f"Job/{object_name(request)}"


def test_a_preempted_training_goes_on_at_the_next_target(there: Launched, tmp_path: Path) -> None:
    request = stub_request(tmp_path / "a")
    there.after_steps(request, 3, there.cluster.evict)
    elsewhere = Option(find_target("h200-1"))
    assert there.launch(request, (SPOT, elsewhere))[0] == "h200-1"
    there.assert_whole(request)
    there.assert_nothing_left()
    assert (request.work / stub_training.SIGNALLED).exists()  # it had its grace period
    first, second = (one["spec"]["template"]["spec"]["nodeSelector"] for one in there.cluster.made)
    assert first["cloud.google.com/gke-spot"] == "true" and "cloud.google.com/gke-spot" not in second
    assert any("was preempted" in line and "goes on at h200-1" in line for line in there.lines)
    assert not any("unexpected message received after closed" in line for line in there.lines)


@pytest.mark.parametrize("fault", ["evict", "lose_node", "crash"])
def test_on_the_last_target_kubernetes_starts_it_again(there: Launched, tmp_path: Path, fault: str) -> None:
    request = stub_request(tmp_path / "a")
    there.after_steps(request, 3, getattr(there.cluster, fault))
    assert there.launch(request, (STAYS,))[0] == "h100-8"
    there.assert_whole(request)
    there.assert_nothing_left()
    assert len(there.cluster.made) == 1  # one job, two pods


def test_bad_input_is_not_tried_again_and_its_log_is_told_without_secrets(there: Launched, tmp_path: Path) -> None:
    request = stub_request(tmp_path / "a", exits={"1": 2})
    target, error = there.launch(request)
    assert target is None and "exit code 2" in error and "\nfailed; token" in error
    assert error.index("what it trains on is no data (training of") < error.index("exit code 2")  # the cause is first
    assert SECRET not in error
    assert (request.work / stub_training.ATTEMPTS).read_text() == "."
    there.assert_nothing_left()


def test_a_pod_that_keeps_crashing_fails_for_good(there: Launched, tmp_path: Path) -> None:
    request = stub_request(tmp_path / "a", exits={str(attempt): 137 for attempt in range(1, 9)})
    target, error = there.launch(request, (STAYS,))
    assert target is None and "backoff limit" in error
    assert (request.work / stub_training.ATTEMPTS).read_text() == "...."  # and three attempts more
    there.assert_nothing_left()


def test_an_image_that_cannot_be_pulled_is_named_in_time(there: Launched, tmp_path: Path) -> None:
    there.cluster.faults = Faults(no_image=60.0)
    started = time.monotonic()
    target, error = there.launch(stub_request(tmp_path / "a"))
    assert target is None and "ImagePullBackOff: Back-off pulling image registry.example/capibara:1" in error
    assert time.monotonic() - started < 10
    there.assert_nothing_left()


def test_an_image_that_comes_late_is_waited_for(there: Launched, tmp_path: Path) -> None:
    there.cluster.faults = Faults(no_image=time.monotonic() - there.cluster._born + 0.2)
    request = stub_request(tmp_path / "a")
    assert there.launch(request)[0] == "h100-8"
    there.assert_whole(request)


def test_where_no_node_comes_the_next_target_is_tried(there: Launched, tmp_path: Path) -> None:
    there.cluster.faults = Faults(no_node=frozenset({("cloud.google.com/gke-spot", "true")}))
    request = stub_request(tmp_path / "a")
    assert there.launch(request, waits=replace(WAITS, start=0.3))[0] == "h100-8"
    there.assert_whole(request)
    assert any("no node in" in line and "0/3 nodes are available" in line for line in there.lines)
    there.assert_nothing_left()


def test_an_api_that_is_gone_for_a_while_is_waited_for(there: Launched, tmp_path: Path) -> None:
    request, gone = stub_request(tmp_path / "a"), [0.0, 0.0]

    def leave(pod: str) -> None:
        gone[:] = [time.monotonic(), time.monotonic() + 1.0]

    there.after_steps(request, 2, leave)
    there.api.trouble.of = lambda method, path: "drop" if gone[0] < time.monotonic() < gone[1] else None
    assert there.launch(request)[0] == "h100-8"
    there.assert_whole(request)
    there.assert_nothing_left()
    assert (request.work / stub_training.ATTEMPTS).read_text() == "."


def test_an_api_that_has_too_much_to_do_is_left_alone_for_as_long_as_it_asks(there: Launched, tmp_path: Path) -> None:
    request, asked = stub_request(tmp_path / "a"), list[float]()

    def busy(method: str, path: str) -> int | None:
        asked.append(time.monotonic())
        return 429 if len(asked) == 1 else None

    there.api.trouble.of, there.api.trouble.retry_after = busy, "1"
    assert there.launch(request)[0] == "h100-8"
    assert asked[1] - asked[0] >= 1.0
    there.assert_whole(request)


def test_a_log_that_is_cut_is_read_again(there: Launched, tmp_path: Path) -> None:
    request, cut = stub_request(tmp_path / "a", exits={"1": 2}), list[str]()

    def of(method: str, path: str) -> str | None:
        if "/log" in path and not cut:
            cut.append(path)
            return "cut"
        return None

    there.api.trouble.of = of
    target, error = there.launch(request)
    assert target is None and cut and "\nfailed; token" in error
    there.assert_nothing_left()


def test_an_api_that_stays_away_leaves_the_training_to_the_cluster_and_the_next_run_takes_it_over(
    there: Launched, tmp_path: Path
) -> None:
    request, silent = stub_request(tmp_path / "a"), list[str]()
    there.after_steps(request, 2, silent.append)
    there.api.trouble.of = lambda method, path: "drop" if silent else None
    target, error = there.launch(request, waits=replace(WAITS, silence=0.3))
    assert target is None and "ClusterSilent" in error
    there.api.trouble.of = lambda method, path: None
    assert there.launch(request)[0] == "h100-8"
    there.assert_whole(request)
    assert len(there.cluster.made) == 1 and (request.work / stub_training.ATTEMPTS).read_text() == "."
    there.assert_nothing_left()


def test_a_job_that_was_created_without_an_answer_is_not_created_twice(there: Launched, tmp_path: Path) -> None:
    request, lost = stub_request(tmp_path / "a"), list[str]()

    def late(method: str, path: str) -> str | None:
        if method == "POST" and not lost:
            lost.append(path)
            return "late"
        return None

    there.api.trouble.of = late
    assert there.launch(request)[0] == "h100-8"
    there.assert_whole(request)
    assert lost and len(there.cluster.made) == 1


def test_a_job_of_the_same_name_made_from_something_else_ends_before_ours_begins(
    there: Launched, tmp_path: Path
) -> None:
    request, silent = stub_request(tmp_path / "a", waits=True), list[str]()
    there.after_steps(request, 1, silent.append)
    there.api.trouble.of = lambda method, path: "drop" if silent else None
    there.launch(request, (Option(find_target("h200-1")),), waits=replace(WAITS, silence=0.3))
    there.api.trouble.of = lambda method, path: None
    assert there.launch(request, (STAYS,))[0] == "h100-8"
    there.assert_whole(request)
    assert len(there.cluster.made) == 2 and (request.work / stub_training.SIGNALLED).exists()
    there.assert_nothing_left()


def test_a_finished_job_that_somebody_deletes_has_lost_nothing(there: Launched, tmp_path: Path) -> None:
    request = stub_request(tmp_path / "a")
    name = object_name(request)
    there.when(lambda: (request.out / "summary.json").is_file(), lambda: there.cluster.delete("Job", name))
    assert there.launch(request, waits=replace(WAITS, poll=0.5))[0] == "h100-8"
    there.assert_whole(request)
    there.assert_nothing_left()


def test_a_job_that_somebody_deletes_half_way_fails_in_words(there: Launched, tmp_path: Path) -> None:
    request = stub_request(tmp_path / "a")
    there.after_steps(request, 2, lambda pod: there.cluster.delete("Job", object_name(request)))
    target, error = there.launch(request)
    assert target is None and "somebody else deleted it" in error
    there.assert_nothing_left()


def test_the_budget_ends_a_training_that_then_goes_on_with_a_larger_one(there: Launched, tmp_path: Path) -> None:
    request = stub_request(tmp_path / "a")
    target, error = there.launch(request, (STAYS,), max_hours=0.05 / 3600)
    assert target is None and "was ended" in error and "max_hours" in error
    there.assert_nothing_left()
    assert there.launch(request, (STAYS,), max_hours=1.0)[0] == "h100-8"
    there.assert_whole(request)


def test_capibara_jobs_stop_ends_the_job_and_not_only_its_pod(there: Launched, tmp_path: Path) -> None:
    request, jobs = stub_request(tmp_path / "a"), Jobs(tmp_path / "home")

    def stop_it(pod: str) -> None:
        while not jobs.all():  # the launch has not yet seen the pod that runs
            time.sleep(0.005)
        stop(jobs, jobs.find("latest"))

    there.after_steps(request, 2, stop_it)
    target, error = there.launch(request, (STAYS,))
    assert target is None and "deleted" in error
    assert (request.work / stub_training.ATTEMPTS).read_text() == "."
    assert jobs.find("latest").state == "stopped"
    there.assert_nothing_left()


TWO_NODES = (Option(find_target("h100-16"), spot=True),)


def test_voters_train_side_by_side_on_several_nodes_and_are_put_together(there: Launched, tmp_path: Path) -> None:
    request = stub_request(tmp_path / "a", together=4, failing=["voter-2"])
    assert there.launch(request, TWO_NODES)[0] == "h100-16"
    assert (request.out / "summary.json").is_file()  # of the others: the assembly decides by the quorum
    assert any("a voter failed" in line for line in there.lines)
    there.assert_nothing_left()


def test_a_voter_over_several_nodes_is_a_set_that_starts_again_as_a_whole(
    there: Launched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capibara_assets.launching.remote.write_scripts", lambda *_: None)  # there is no base
    request = stub_request(tmp_path / "a", processes=16, attempts=2)
    waiting = there.when(
        lambda: len(list(request.work.glob("node-*"))) == 2 and len(there.cluster.names()) == 2,
        lambda: there.cluster.evict(there.cluster.names()[0]),
    )
    assert there.launch(request, TWO_NODES)[0] == "h100-16"
    waiting.join()
    nodes = sorted(file.name.rsplit("-", 1)[0] for file in request.work.glob("node-*"))
    assert nodes == ["node-0", "node-0", "node-1", "node-1"]
    assert (request.out / "summary.json").is_file()
    there.assert_nothing_left()


def test_a_set_is_gone_on_with_at_the_next_target(
    there: Launched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capibara_assets.launching.remote.write_scripts", lambda *_: None)
    request = stub_request(tmp_path / "a", processes=16, attempts=2)
    there.when(
        lambda: len(list(request.work.glob("node-*"))) == 2 and len(there.cluster.names()) == 2,
        lambda: there.cluster.evict(there.cluster.names()[0]),
    )
    assert there.launch(request, (*TWO_NODES, Option(find_target("h100-32"))))[0] == "h100-32"
    assert any("was preempted" in line for line in there.lines)
    there.assert_nothing_left()
