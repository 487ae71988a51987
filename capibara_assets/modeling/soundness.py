"""Whether a model's folder can be used as it lies there: it loads, nothing is missing, and every weight is finite."""

from pathlib import Path

from capibara_assets.errors import InputError


def model_problems(folder: Path) -> list[str]:
    """Problems of a causal language model's folder, in words; loads the model."""
    from capibara_assets.modeling.base import load_base

    try:
        loaded = load_base(folder)
    except InputError as error:
        return [str(error)]
    problems = []
    for what, names in (("missing, so they are random numbers", loaded.new_layers), ("not read", loaded.unread)):
        if names:
            problems.append(f"{len(names)} weights are {what}: first {names[0]}")
    bad = sorted(name for name, weight in loaded.model.named_parameters() if not bool(weight.isfinite().all()))
    if bad:
        problems.append(f"{len(bad)} weights hold NaN or infinity: first {bad[0]}")
    return problems
