"""Which options of `capibara plan` each of its modes uses; one that a mode cannot use is refused, with the reason."""

from collections.abc import Iterable
from typing import Literal

import click
from click.core import ParameterSource

from capibara_assets.errors import InputError

Mode = Literal["claims", "preset", "lora", "tpu"]

_ALWAYS = frozenset({"recipe", "out", "as_json"})
_PLANS = _ALWAYS | {"level", "dataset_statistics", "examples", "sequence", "model", "hardware", "domain", "throughput"}
USED: dict[Mode, frozenset[str]] = {
    "claims": _ALWAYS | {"claims", "measuring"},
    "preset": _PLANS | {"preset", "quantization", "voters"},
    "lora": _PLANS | {"voters"},
    "tpu": _PLANS | {"xla_flags", "compiling", "submitting", "adopting"},
}
_ASKED: dict[Mode, str] = {
    "claims": "--claims only prints the specification's figures",
    "preset": "--preset plans a recipe of the PyTorch trainer as it stands",
    "lora": "the target is not a TPU slice",
    "tpu": "the target is a TPU slice",
}
_WHY: dict[tuple[Mode, str], str] = {
    ("claims", "level"): "the table shows every level",
    ("lora", "quantization"): "it replaces a preset's; without --preset the plan chooses one by the memory",
    ("tpu", "quantization"): "TPU trainers hold the base in bf16",
    ("tpu", "voters"): "a TPU plan trains one model per domain",
    **{(mode, "measuring"): "it belongs to --claims" for mode in ("preset", "lora", "tpu")},
    **{(mode, "compiling"): "XLA compiles for TPU slices alone" for mode in ("preset", "lora")},
    **{(mode, "submitting"): "the graph starts trainings on CPUs and GPUs" for mode in ("preset", "lora")},
    **{(mode, "adopting"): "the graph publishes what it trains" for mode in ("preset", "lora")},
    **{(mode, "xla_flags"): "XLA's flags are for TPU slices alone" for mode in ("preset", "lora")},
}


def given_options(context: click.Context) -> frozenset[str]:
    """Names (in Python) of the options that the command line or the environment gave."""
    given = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return frozenset(
        str(param.name)
        for param in context.command.params
        if param.expose_value and context.get_parameter_source(str(param.name)) in given  # not --quiet, of all commands
    )


def require_used(mode: Mode, given: Iterable[str], context: click.Context) -> None:
    """Refuse options that this mode does not use.

    Raises:
        InputError: names each of them, and why.
    """
    unused = sorted(set(given) - USED[mode])
    if not unused:
        return
    named = {str(param.name): param.opts[0] for param in context.command.params}
    told = [f"{named[name]} has no use here{f' ({why})' if (why := _WHY.get((mode, name))) else ''}" for name in unused]
    raise InputError(f"{_ASKED[mode]}: {'; '.join(told)}. Leave {'it' if len(unused) == 1 else 'them'} out")
