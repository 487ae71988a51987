"""Enumerations of the counting conventions and training choices that a plan's figures depend on."""

from enum import StrEnum


class Attention(StrEnum):
    """Which attention positions a FLOP count includes."""

    FULL = "full"
    CAUSAL = "causal"


class Method(StrEnum):
    """Which weights are trained: all, or a LoRA adapter's."""

    FULL = "full"
    LORA = "lora"


class Remat(StrEnum):
    """Recomputation (rematerialization) policy: what the backward pass computes again instead of keeping.

    NONE keeps every intermediate result; MINIMAL keeps the results of matrix products; FULL keeps each layer's input.
    """

    NONE = "none"
    MINIMAL = "minimal"
    FULL = "full"


class Optimizer(StrEnum):
    """Optimizers by their state: two float32 moments, one factored second moment, or two 8-bit moments."""

    ADAMW = "adamw"
    ADAFACTOR = "adafactor"
    ADAMW_8BIT = "adamw_8bit"


class Loss(StrEnum):
    """How the loss is computed.

    CHUNKED: a few tokens at a time, whose logits are freed at once (our loss, and vocabulary tiling); WHOLE: all logits
    of the micro-batch at once, kept as part of the model's output (Transformers).
    """

    CHUNKED = "chunked"
    WHOLE = "whole"
