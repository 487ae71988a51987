"""LoRA (Hu et al. 2021): factors beside frozen matrices, A (in, rank) random, B (rank, out) zero."""

from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.modeling.jax.sizes import StepSettings, Table, Weight

A, B = ".lora_A", ".lora_B"


def factors(base: Table, settings: StepSettings) -> Table:
    """The table of the factors of every matrix whose module is in `settings.lora_modules`.

    A's input side and B's output side are sharded as the matrix's; the rank is not sharded.

    Raises:
        InputError: a module that the model does not have.
    """
    matrices = {name: weight for name, weight in base.items() if len(weight.size) == 3}
    # A T5 decoder's two attentions have modules of the same names, as PEFT sees them.
    module = {name: name.rsplit(".", 1)[1].removeprefix("cross_") for name in matrices}
    known = set(module.values())
    unknown = sorted(set(settings.lora_modules) - known)
    if unknown:
        raise InputError(f"no linear layers {', '.join(unknown)} for LoRA; the model has {', '.join(sorted(known))}")
    table: Table = {}
    for name, ((layers, inputs, outputs), (_, first, second)) in matrices.items():
        if module[name] in settings.lora_modules:
            table[name + A] = Weight((layers, inputs, settings.lora_rank), (None, first, None))
            table[name + B] = Weight((layers, settings.lora_rank, outputs), (None, None, second))
    return table


def initial(table: Table, seed: int) -> dict[str, Any]:
    """Initial float32 factors: A uniform as in PEFT (Kaiming, a = √5: ±1/√in), B zero: no change of the base."""
    import numpy as np

    chance = np.random.default_rng(seed)
    values: dict[str, Any] = {}
    for name, weight in table.items():
        bound = weight.size[1] ** -0.5
        drawn = chance.uniform(-bound, bound, weight.size) if name.endswith(A) else np.zeros(weight.size)
        values[name] = drawn.astype(np.float32)
    return values
