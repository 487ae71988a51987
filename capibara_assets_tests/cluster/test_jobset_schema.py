"""Every JobSet that is made, of trainings and of TPU plans, is one that its controller takes."""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from capibara_assets_tests.cluster.jobset_schema import CRD_VARIABLE, by_crd, problems
from capibara_assets_tests.cluster.test_pods import GOLDEN

GOLDEN_SETS = [
    (file.name, body)
    for file in sorted(GOLDEN.glob("*.yaml"))
    for body in yaml.safe_load_all(file.read_text())
    if body["kind"] == "JobSet"
]
Change = Callable[[dict[str, Any]], object]
ONE: dict[str, Any] = GOLDEN_SETS[0][1]
WRONG: dict[str, Change] = {
    "a field that there is not": lambda body: body["spec"].update(successPolice={}),
    "a field of a pod that there is not": lambda body: pod(body).update(nodeSelektor={}),
    "a number as a text": lambda body: body["spec"].update(ttlSecondsAfterFinished="3600"),
    "a job without a template": lambda body: body["spec"]["replicatedJobs"][0].pop("template"),
    "fewer than no replicas": lambda body: body["spec"]["replicatedJobs"][0].update(replicas=-1),
    "a policy as a list": lambda body: body["spec"].update(failurePolicy=[]),
}
BY_THE_WEBHOOK: dict[str, Change] = {
    "a name that is too long for its pods": lambda body: body["metadata"].update(name="a" * 50),
    "a subdomain with a dot": lambda body: body["spec"]["network"].update(subdomain="a.b"),
    "a coordinator that there is not": lambda body: body["spec"].update(coordinator={"replicatedJob": "another"}),
}


def pod(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("version", ["1.30", "1.37"])
@pytest.mark.parametrize(("name", "body"), GOLDEN_SETS, ids=[name for name, _ in GOLDEN_SETS])
def test_what_is_made_is_taken(name: str, body: dict[str, Any], version: str) -> None:
    assert problems(body, version) == []


@pytest.mark.parametrize("what", [*WRONG, *BY_THE_WEBHOOK])
def test_what_is_wrong_is_named(what: str) -> None:
    body = copy.deepcopy(ONE)
    (WRONG | BY_THE_WEBHOOK)[what](body)
    assert problems(body)


def test_a_crds_file_is_read_as_the_api_server_reads_it(tmp_path: Path) -> None:
    spec = {
        "type": "object",
        "properties": {
            "many": {"type": "integer", "minimum": 1},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True},
            "free": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    schema = {"type": "object", "properties": {"spec": spec, "metadata": {"type": "object"}}}
    crd = tmp_path / "crd.yaml"
    document = {"spec": {"versions": [{"name": "v1alpha2", "schema": {"openAPIV3Schema": schema}}]}}
    crd.write_text(yaml.safe_dump(document))
    assert by_crd({"metadata": {"name": "a"}, "spec": {"many": 1, "either": "50%", "free": {"a": "b"}}}, crd) == []
    for wrong in ({"many": 0}, {"may": 1}, {"either": []}, {"free": {"a": 1}}):
        assert len(by_crd({"spec": wrong}, crd)) == 1


@pytest.mark.skipif(CRD_VARIABLE not in os.environ, reason=f"{CRD_VARIABLE} names no CRD of JobSet")
@pytest.mark.parametrize("what", WRONG)
def test_the_crd_itself_refuses_what_the_model_refuses(what: str) -> None:
    body, crd = copy.deepcopy(ONE), Path(os.environ[CRD_VARIABLE])
    assert by_crd(body, crd) == []
    WRONG[what](body)
    assert by_crd(body, crd)
