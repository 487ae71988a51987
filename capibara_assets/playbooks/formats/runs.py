"""Reads an agent's manifest and reports of adaptation runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from capibara_assets.domains import Domain
from capibara_assets.playbooks.formats.ace_json import agent_of
from capibara_assets.playbooks.formats.parsed import UnfitEntry

_RECORD = ("graduation_score", "interactions", "successes", "success_rate")
_MOST = 2**63 - 1


class AgentManifest(BaseModel):
    """A JSON object such as `<agent folder>/agent.json`: speaks for every playbook in its folder and below.

    What it does not say is computed; keys of other tools are left alone.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    agent_id: str = Field(min_length=1, description="name of the agent")
    interactions: int | None = Field(default=None, ge=0, le=_MOST, strict=True, description="tasks attempted")
    successes: int | None = Field(default=None, ge=0, le=_MOST, strict=True, description="tasks solved")
    success_rate: float | None = Field(
        default=None, ge=0, le=1, strict=True, description="where successes are not given"
    )
    domain_expertise: list[Domain] = Field(default_factory=list, description="domains it knows")
    graduation_score: float | None = Field(default=None, ge=0, le=1, strict=True, description="instead of computed")

    @model_validator(mode="after")
    def _successes_are_interactions(self) -> "AgentManifest":
        if self.successes is not None and self.interactions is None:
            raise ValueError("successes without interactions say nothing")
        if self.successes is not None and self.interactions is not None and self.successes > self.interactions:
            raise ValueError(f"successes {self.successes} exceed interactions {self.interactions}")
        return self


@dataclass(frozen=True)
class RunReport:
    """Tasks attempted and solved in one adaptation run; `successes` is None when the report does not say."""

    experiment: str
    agent_id: str | None
    interactions: int
    successes: int | None


def read_manifest(document: Mapping[str, Any]) -> AgentManifest:
    """Validates an agent's manifest. Raises UnfitEntry with the first field that is wrong."""
    try:
        return AgentManifest.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UnfitEntry(f"agent:{where}" if where else "agent", first["msg"]) from error


def looks_like_manifest(document: Mapping[str, Any]) -> bool:
    """Whether an object names an agent and says how it did."""
    return isinstance(document.get("agent_id"), str) and any(name in document for name in _RECORD)


def looks_like_run(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object is the report of an adaptation run or of an evaluation with a playbook."""
    return "config" in document and any(key in document for key in ("experiment_id", "ace_offline", "test_results"))


def read_run(document: Mapping[str, Any]) -> RunReport:
    """Reads tasks and successes of a run from its final metrics, else by counting its results. Raises UnfitEntry."""
    results, offline = document.get("results"), document.get("ace_offline")
    training = offline.get("training_stats") if isinstance(offline, Mapping) else None
    for part in (results, training):
        metrics = part.get("final_metrics") if isinstance(part, Mapping) else None
        if isinstance(metrics, Mapping):
            return _report(document, metrics.get("total_tasks"), metrics.get("successful_tasks"))
    tested = document.get("test_results")
    samples = tested.get("results") if isinstance(tested, Mapping) else None
    if isinstance(samples, list):
        verdicts = [sample.get("success") for sample in samples if isinstance(sample, Mapping)]
        known = all(isinstance(verdict, bool) for verdict in verdicts)
        return _report(document, len(samples), sum(map(bool, verdicts)) if known else None)
    raise UnfitEntry("missing:final_metrics", "a run report without final metrics or results")


def _report(document: Mapping[str, Any], total: Any, solved: Any) -> RunReport:
    for name, value in (("total_tasks", total), ("successful_tasks", solved)):
        if value is None and name == "successful_tasks":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
            raise UnfitEntry(f"type:{name}", f"expected a whole number from 0 to {_MOST}, found {value!r:.40}")
    if solved is not None and solved > total:
        raise UnfitEntry("agent", f"successful_tasks {solved} exceed total_tasks {total}")
    experiment = document.get("experiment_id", document.get("timestamp"))
    return RunReport(
        experiment=experiment if isinstance(experiment, str) else "",
        agent_id=agent_of(document),
        interactions=total,
        successes=solved,
    )
