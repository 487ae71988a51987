"""Inputs and outputs of the training of a domain's adapters, as the asset reads and publishes them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capibara_assets.domains import Domain
from capibara_assets.planning.adapters import adapter_of
from capibara_assets.planning.cost import CostPlan, TimedTraining, outcome_of
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.tpu.plan import TpuPlan
from capibara_assets.storage.artifact import Artifact
from capibara_assets.training.decided import decide
from capibara_assets.training.monitoring.events import EVENTS
from capibara_assets.training.monitoring.metrics import METRICS
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.request import Fault, FurtherDataset, TrainingRequest
from capibara_assets.training.standalone.scripts import write_scripts
from capibara_assets.training.strategy import needs_all_domains
from capibara_assets.training.supervisor.assembly import VOLATILE as OF_A_RUN
from capibara_assets.training.voter_manifest import CHECKPOINTS, CURVE, MANIFEST, TIMINGS

VOLATILE = (*OF_A_RUN, "outcome.json")
"""Files whose bytes differ between equal trainings; not part of the data version."""
BESIDE = (MANIFEST, CURVE, EVENTS, METRICS, TIMINGS, CHECKPOINTS)
"""Files of a voter's folder that are about its training and not part of the adapter."""


@dataclass(frozen=True)
class Materials:
    """Base model, published dataset and plan of a domain, and other domains' datasets if a voter needs them.

    Attributes:
        base_digest: of the base model in the folder `base_model`.
        others: other domains' `moe_dataset`.
        tpu: the domain's `tpu_config`, where the target is a TPU slice.
    """

    recipe: TrainingRecipe
    base_model: Path
    base_digest: str
    dataset: Artifact
    plan: Artifact
    others: Mapping[Domain, Artifact]
    tpu: Artifact | None = None

    @property
    def targets(self) -> list[str]:
        """Names of the hardware targets that may train by the plan, the one that it is for first."""
        try:
            chosen = self.plan.document("hardware")
        except KeyError:  # the deployment leaves nothing to choose
            return [self.plan.document("plan")["target"]]
        return list(chosen["usable"])

    @property
    def lora(self) -> dict[str, Any]:
        """The LoRA plan to train; on a slice the one in its own plan, which XLA may have changed."""
        plan: dict[str, Any] = self.plan.document("plan")
        if self.tpu is None:
            return plan
        slice_plan = TpuPlan.model_validate(self.tpu.document("plan"))
        return adapter_of(slice_plan, plan["level"]).model_dump(mode="json")

    def request(
        self, work: Path, checkpoints: str, run: str | None, fault: Mapping[str, Fault], target: HardwareTarget
    ) -> TrainingRequest:
        """The training request for the folder `work`, with the plan's settings; arguments as its fields.

        Raises:
            InputError: the plan is for another target, or contradicts the recipe.
        """
        plan = self.lora
        # A slice's plan is itself what the JAX trainer runs; the recipe's back ends are PyTorch's.
        recipe, planned = decide(self.recipe, plan, target) if self.tpu is None else (self.recipe, None)
        return TrainingRequest(
            domain=str(self.dataset.partition),
            base_model=self.base_model,
            base_digest=self.base_digest,
            dataset=_examples(self.dataset),
            dataset_digest=self.dataset.digest,
            further={
                other: FurtherDataset(dataset=_examples(one), digest=one.digest) for other, one in self.others.items()
            },
            lora=plan,
            tpu=self.tpu.document("plan") if self.tpu is not None else None,
            recipe=recipe,
            planned=planned,
            seed=self.recipe.seed,
            work=work,
            out=work / "out",
            checkpoints=checkpoints,
            run=run,
            planned_tokens_per_s=planned_speed(self.plan),
            fault=dict(fault),
        )

    def shards(self, finished: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
        """Finished voter -> (its shard, number of registered voters)."""
        voters = self.recipe.voters
        return {voter.name: (voter.shard, len(voters)) for voter in voters if voter.name in finished}

    def further(self) -> dict[str, Mapping[Domain, Artifact]]:
        """Voter -> other domains' datasets that it trains on, for the voters that need them."""
        return {voter.name: self.others for voter in self.recipe.voters if needs_all_domains(voter.strategy)}


@dataclass(frozen=True)
class FinishedTraining:
    """A finished training, ready to be published.

    Attributes:
        summary: the supervisor's summary of the voters.
        outcome: measured against predicted cost; None for a plan made before costs were recorded.
        voters, launch: folders of the voters' adapters, and of scripts that start the same training again.
    """

    summary: dict[str, Any]
    outcome: TimedTraining | None
    voters: Path
    launch: Path

    @classmethod
    def read(
        cls, request: TrainingRequest, plan: Artifact, target: HardwareTarget, trained_on: HardwareTarget | None = None
    ) -> "FinishedTraining":
        """Read the output of a finished training, and write its launch scripts.

        Args:
            target: that the plan is for.
            trained_on: where it ended, after preemptions; None: on `target`.
        """
        summary = json.loads((request.out / "summary.json").read_text())
        launch = write_scripts(request.work / "launch", request, target)
        # What other devices took says nothing about the slice that they stood for.
        elsewhere = any(row.get("platform", target.kind) != target.kind for row in summary["voters"].values())
        moved = trained_on is not None and trained_on.name != target.name
        outcome = None if moved or (request.tpu is not None and elsewhere) else recorded_outcome(plan, summary)
        return cls(summary, outcome, request.out / "voters", launch)

    def trees(self) -> dict[str, Path]:
        """Name -> folder, to publish."""
        return {"voters": self.voters, "launch": self.launch}

    def documents(self) -> dict[str, Any]:
        """Name -> JSON document, to publish."""
        return {
            "summary": self.summary,
            **({"outcome": self.outcome.model_dump(mode="json")} if self.outcome else {}),
        }


def planned_speed(plan: Artifact) -> float | None:
    """Predicted tokens per second of one voter with full rows; None if the plan predicts no time."""
    try:
        seconds = CostPlan.model_validate(plan.document("cost")).adapter.seconds
    except KeyError:  # a plan made before costs were recorded
        return None
    tokens = plan.document("plan")["estimates"].get("tokens_at_most")
    return tokens / seconds[1] if tokens and seconds and seconds[1] > 0 else None


def recorded_outcome(plan: Artifact, summary: Mapping[str, Any]) -> TimedTraining | None:
    """A training's measured cost beside the predicted one; None for a plan made before costs were recorded."""
    try:
        cost = CostPlan.model_validate(plan.document("cost"))
    except KeyError:
        return None
    return outcome_of(cost, summary["voters"], plan.document("plan")["estimates"].get("optimizer_steps"))


def _examples(dataset: Artifact) -> Path:
    return dataset.directory() / "examples.parquet"
