"""The hardware that a domain's training may use, in order of preference, and the budget that holds there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from capibara_assets.deployment.file import Choice, DomainHardware
from capibara_assets.errors import InputError
from capibara_assets.planning.cost import Cost
from capibara_assets.planning.hardware.declaration import HardwareTarget, Price
from capibara_assets.planning.hardware.targets import find_target


@dataclass(frozen=True)
class Option:
    """One target, and whether its nodes are preemptible."""

    target: HardwareTarget
    spot: bool = False

    def __str__(self) -> str:
        return f"{self.target.name} (spot)" if self.spot else self.target.name


@dataclass(frozen=True)
class HardwareOptions:
    """A domain's targets, the preferred one first, and what a training on them may cost.

    Attributes:
        max_usd, max_hours: of all voters of a domain together; None: no limit.
    """

    options: tuple[Option, ...]
    max_usd: float | None = None
    max_hours: float | None = None

    @classmethod
    def of(cls, declared: DomainHardware) -> "HardwareOptions":
        """What a deployment's file declares. Raises InputError: an unknown target."""
        options = tuple(Option(_priced(one), one.capacity == "spot") for one in declared.targets)
        return cls(options, declared.max_usd, declared.max_hours)

    @property
    def first(self) -> HardwareTarget:
        """The preferred target."""
        return self.options[0].target

    @property
    def targets(self) -> tuple[HardwareTarget, ...]:
        """The different targets, in order."""
        return tuple({one.target.name: one.target for one in self.options}.values())

    @property
    def chosen(self) -> bool:
        """Whether there is anything to choose, or a budget to keep."""
        return len(self.targets) > 1 or self.max_usd is not None or self.max_hours is not None

    def setting(self) -> Any:
        """What a plan depends on: the target itself where there is nothing to choose. Spot or not changes no plan."""
        if not self.chosen:
            return self.first
        targets = [target.model_dump(mode="json") for target in self.targets]
        return {"targets": targets, "max_usd": self.max_usd, "max_hours": self.max_hours}

    def only(self, names: Sequence[str]) -> "HardwareOptions":
        """The options on targets of these names, from the first of them on.

        Raises:
            InputError: the first of the names is none of the targets.
        """
        own = [one.target.name for one in self.options]
        if names[0] not in own:
            raise InputError(
                f"lora_config was planned for {names[0]}, and the deployment trains on {', '.join(dict.fromkeys(own))}:"
                " materialize lora_config first"
            )
        first = own.index(names[0])
        return replace(self, options=tuple(one for one in self.options[first:] if one.target.name in names))

    def too_dear(self, cost: Cost, target: HardwareTarget) -> str | None:
        """Why a predicted cost is over the budget, with the figures; None where it is not, or nothing is predicted.

        Where no time is predicted the launcher's deadline alone holds (`hours_left`); without a price it could not.
        """
        if self.max_usd is not None:
            if target.price.usd_per_hour is None:
                return f"max_usd {self.max_usd:g} cannot be kept: {target.name} has no price ({target.price.note})"
            if cost.usd is not None and cost.usd[1] > self.max_usd:
                low, middle, high = cost.usd
                return f"${middle:,.2f} [{low:,.2f}, {high:,.2f}] predicted, max_usd is {self.max_usd:g}"
        if self.max_hours is not None and (hours := cost.hours) is not None and hours[1] > self.max_hours:
            low, middle, high = hours
            return f"{middle:,.3g} h [{low:,.3g}, {high:,.3g}] predicted, max_hours is {self.max_hours:g}"
        return None

    def hours_left(self, target: HardwareTarget, hours: float = 0.0, usd: float = 0.0) -> float | None:
        """Hours that the budget leaves on a target after `hours` and `usd` were spent; None: no limit."""
        limits = [self.max_hours - hours] if self.max_hours is not None else []
        if self.max_usd is not None and target.price.usd_per_hour:
            limits.append((self.max_usd - usd) / target.price.usd_per_hour)
        return min(limits, default=None)


def _priced(choice: Choice) -> HardwareTarget:
    """A target at the price that the deployment's file gives, where it does."""
    target = find_target(choice.target)
    if choice.usd_per_hour is None:
        return target
    price = Price(usd_per_hour=choice.usd_per_hour, date="today", note="the price in the deployment's file")
    return target.model_copy(update={"price": price})
