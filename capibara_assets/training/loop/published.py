"""What a training comes to by its strategy: the adapter, its validation loss, and what there is to say of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from capibara_assets.modeling.adapters import LoraAdapter

Score = Callable[[Mapping[str, Tensor]], float]
"""Validation loss, nats per token, of weights by the names of trained parameters."""


@dataclass(frozen=True)
class Published:
    """What is published.

    Attributes:
        adapter: as it is written.
        loss: its validation loss where it is not that of the best validation.
        report: the strategy's own figures, as JSON; for the manifest and the log.
    """

    adapter: LoraAdapter
    loss: float | None = None
    report: dict[str, Any] = field(default_factory=dict)
