"""The model and the mesh of a published run, from the columns that its table has."""

import re
from collections.abc import Mapping
from math import prod

from benchmarks.planning.published_cells import Cells
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape

DEFAULT_TOKENS = 16384  # of one chip and step, where a row gives no batch
DEFAULT_VOCABULARY = 32000
# Spellings in `other_parallelism`.
CONTEXT = ("context", "cp", "context_parallel", "context_parallelism")
PASSES = ("grad_accum", "ga", "gradient_accumulation", "gradient_accumulation_steps", "num_microbatches")
MICRO = ("micro", "mbs", "micro_batch", "micro_batch_size")
VIRTUAL = ("vp", "vpp", "virtual_pipeline", "virtual_stages", "interleave")
EXCESS = 1.5  # a mixture this much larger than published has narrower experts than d_ff says
MEGATRON = ("megatron", "nemo")


def read_shape(table: Cells, model: str, architecture: str) -> tuple[ModelShape, float | None]:
    """Sizes, and the active parameters where the publisher's count says more than the sizes do.

    Whether the MLP is gated and the embedding tied stands in no column: the pair whose parameter count comes nearest to
    the published one is taken.
    """
    layers = table.parts("layers")
    if not layers:
        raise table.refusal("layers", "is empty, and nothing can be predicted without it")
    hidden, heads = table.needed("d_model"), table.needed("n_heads")
    head_dim = table.whole("head_dim") or max(1, hidden // heads)
    published = table.number("params_b")
    published = None if published is None else published * 1e9
    vocabulary = table.whole("vocab")
    if vocabulary is None:
        vocabulary = DEFAULT_VOCABULARY
        table.assume("vocab", vocabulary)
    experts, chosen = table.whole("n_experts") or 1, table.whole("experts_per_token") or 1
    kv_heads = table.whole("kv_heads") or heads
    t5 = architecture == "encoder-decoder" or len(layers) == 2
    width = table.whole("d_ff")
    base = {
        "name": model,
        "architecture": "t5" if t5 else ("mixtral" if experts > 1 else "llama"),
        "layers": layers[-1],
        "encoder_layers": layers[0] if t5 else 0,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": heads if t5 else kv_heads,
        "head_dim": head_dim,
        "vocabulary": vocabulary,
        "experts": experts if experts > 1 else 1,
        "experts_per_token": min(chosen, experts) if experts > 1 else 1,
    }
    if width is None:
        width = _width(base, published) if published else 4 * hidden
        table.assume("d_ff", width, "from params_b" if published else "4 x d_model")
    elif experts > 1 and published and ModelShape(**base, intermediate=width).parameters > EXCESS * published:  # type: ignore[arg-type]
        width = _width(base, published)  # d_ff is that of the model's dense layers
        table.assume("d_ff", width, "an expert's, from params_b")
    options = [
        ModelShape(**base, intermediate=width, gated=gated, tied=tied)  # type: ignore[arg-type]
        for gated in (True, False)
        for tied in (False, True)
    ]
    shape = min(options, key=lambda one: abs(one.parameters - published)) if published else options[0]
    if published and not t5 and experts == 1 and abs(shape.parameters / published - 1) > 0.05:
        # Something the sizes do not show (per-layer embeddings, adapters, wider layers): the published count rules.
        return shape, max(published - (0 if shape.tied else shape.embedding_parameters), 1.0)
    active = table.number("active_params_b")
    if active is not None and experts > 1:
        return shape, max(active * 1e9 - shape.embedding_parameters, 1.0)
    return shape, None


def _width(base: Mapping[str, object], published: float) -> int:
    """The MLP width with which a gated model has the published number of parameters."""
    one = ModelShape(**base, intermediate=1)  # type: ignore[arg-type]
    two = ModelShape(**base, intermediate=2)  # type: ignore[arg-type]
    slope = two.parameters - one.parameters
    return max(1, round((published - one.parameters) / slope))


def read_mesh(
    table: Cells, chips: int, slices: int, other: Mapping[str, str], software: str, *, tpu: bool
) -> tuple[Mesh, int]:
    """The axes a row names; what they leave open becomes fsdp, the axis that published runs use for it.

    Chips that share a sequence (context parallelism) cut the weights too, and so are part of fsdp; only Megatron lets
    them repeat the weights, as part of data.
    """
    named = {name: table.whole(name) for name in ("fsdp", "tensor", "data", "pipeline", "expert")}
    context = setting(other, CONTEXT) or 1
    if other.get("fsdp_transpose", "").isdigit():
        named["fsdp"] = (named["fsdp"] or 1) * int(other["fsdp_transpose"])
    given = prod(value or 1 for value in named.values()) * context
    experts = named["expert"] or 1
    for name in ("data", "fsdp"):  # Megatron counts the chips that share out experts among those that repeat the rest
        value = named[name] or 1
        if given > chips and given == chips * experts and value % experts == 0:
            named[name], given = value // experts, chips
    if named["data"] is None and tpu and slices > 1 and chips % (given * slices) == 0:
        named["data"], given = slices, given * slices  # slices are joined by data parallelism unless a row says else
        table.assume("data", slices)
    if given != chips or named["fsdp"] is None:
        rest, left = divmod(chips, given // (named["fsdp"] or 1))
        if left or rest < 1:
            fixed = {name: value for name, value in named.items() if value not in (None, 1)}
            table.assume("mesh", f"fsdp {chips}", f"{fixed} with context {context} do not divide {chips} chips")
            named, rest, context = dict.fromkeys(named, 1), chips, 1
        if named["fsdp"] != rest:
            table.assume("fsdp", rest)
        named["fsdp"] = rest
    lengths = {name: value or 1 for name, value in named.items()}
    lengths["data" if software.startswith(MEGATRON) and lengths["fsdp"] == 1 else "fsdp"] *= context
    if slices > 1 and lengths["data"] % slices == 0 and tpu:
        return Mesh(**{**lengths, "data": lengths["data"] // slices}, slices=slices), context
    return Mesh(**lengths), context


def read_global_batch(table: Cells, mesh: Mesh, chips: int, sequence: int, context: int, software: str) -> float:
    """Sequences of one optimizer step.

    MaxText's batch per device counts every chip, others' the chips that see different sequences.
    """
    batch = table.number("global_batch")
    if batch is not None:
        return batch
    per_device = table.number("per_device_batch")
    if per_device is not None:
        return per_device * (chips if software == "maxtext" else mesh.batch_shards / context)
    noted = re.search(r"(\d+)k tokens/(?:device|chip)", table.text("note").lower())
    if noted:
        table.assume("global_batch", "from the remarks")
        return int(noted[1]) * 1024 * chips / sequence
    speed, step = table.number("tokens_per_s_per_chip"), table.number("step_time_s")
    if speed is not None and step is not None:
        return speed * step * chips / sequence
    tokens = max(DEFAULT_TOKENS, sequence)
    table.assume("global_batch", tokens * chips / sequence, f"{tokens} tokens a chip")
    return tokens * chips / sequence


def read_passes(
    table: Cells, mesh: Mesh, chips: int, batch: float, context: int, other: Mapping[str, str], software: str
) -> int:
    """Forward and backward passes of one optimizer step.

    Stated, or what the batch of a device leaves of the global one; of a pipeline where neither is said, a sequence each
    (MaxText's pipelines get as many as they have stages).
    """
    stated = setting(other, PASSES)
    if stated is not None:
        return stated
    share = batch * context / mesh.batch_shards
    micro: float | None = setting(other, MICRO)
    per_device = table.number("per_device_batch") if table.text("global_batch") else None
    if micro is None and per_device is not None and software != "maxtext" and per_device * chips != batch:
        micro = per_device
    if micro is not None:
        return max(1, round(share / micro))
    if mesh.pipeline > 1 and software != "maxtext":
        table.assume("grad_accum", max(1, round(share)), "one sequence a pass")
        return max(1, round(share))
    return 1


def setting(other: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    """The first of these settings that is stated as a whole number of at least 1."""
    return next((int(other[name]) for name in names if other.get(name, "").isdigit() and int(other[name])), None)
