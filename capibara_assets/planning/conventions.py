"""Names of what a plan counts and how: each is said beside every figure that depends on it."""

from enum import StrEnum


class Attention(StrEnum):
    """Which attention positions a FLOP count includes."""

    FULL = "full"
    CAUSAL = "causal"


class Method(StrEnum):
    """What is trained."""

    FULL = "full"
    LORA = "lora"


class Remat(StrEnum):
    """What the backward pass computes again instead of keeping.

    NONE keeps every intermediate result; MINIMAL keeps the results of matrix products; FULL keeps each layer's input.
    """

    NONE = "none"
    MINIMAL = "minimal"
    FULL = "full"


class Optimizer(StrEnum):
    """Optimizers by their state: two float32 moments; factored second moment only; two 8-bit moments."""

    ADAMW = "adamw"
    ADAFACTOR = "adafactor"
    ADAMW_8BIT = "adamw_8bit"


class Loss(StrEnum):
    """How the loss is computed.

    CHUNKED: so many tokens at a time, logits dropped at once (our loss, and vocabulary tiling); WHOLE: all logits of
    the micro-batch in one piece, and part of the model's output (Transformers).
    """

    CHUNKED = "chunked"
    WHOLE = "whole"
