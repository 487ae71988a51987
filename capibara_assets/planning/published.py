"""Published training runs from a CSV: each row a workload, a machine and what was measured, or the reason why not."""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Optimizer, Remat
from capibara_assets.planning.machine import Machine, machine
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.workload import NOTHING, Recompute, Workload, policy

REQUIRED = ("hardware", "chips", "model", "layers", "d_model", "n_heads")
MEASURED = ("step_time_s", "tokens_per_s_per_chip", "tflops_per_s_per_chip", "mfu_published", "mfu_computed")
# Columns that memory depends on.
JUDGED = (
    *("seq_len", "per_device_batch", "global_batch", "fsdp", "tensor"),
    *("remat_policy", "weight_dtype", "optimizer"),
)
DEFAULT_SEQUENCE = 4096
DEFAULT_TOKENS = 16384  # of one chip and step, where a row gives no batch
DEFAULT_VOCABULARY = 32000
# Sliding-window attention that the columns cannot say: (name's beginning, window, share of layers), from the models'
# own configurations (sliding_window, layer_types).
WINDOWS = (
    ("gemma-2", 4096, 1 / 2),
    ("gemma2", 4096, 1 / 2),
    ("gemma-3", 1024, 5 / 6),
    ("gemma3", 1024, 5 / 6),
    ("gemma4", 1024, 5 / 6),
    ("gpt-oss", 128, 1 / 2),
)
# What a bare "fp8" means: torchtitan's default recipe scales whole tensors.
DEFAULT_SCALING = {("torchtitan", "fp8"): "fp8-tensorwise"}
EAGER = ("llm-foundry", "transformers", "trl", "huggingface", "deepspeed", "accelerate", "llama-factory", "axolotl")


@dataclass(frozen=True)
class PublishedRun:
    """One row that can be predicted.

    Attributes:
        row: its id, or its number in the file.
        model: group for cross-validation.
        workload: its settings.
        machine: its chips.
        tokens_per_second: measured, of one chip (targets of an encoder-decoder); None where the row measured nothing.
        measured_from: the column that the measurement was taken from.
        assumed: settings the row does not give, and what was taken instead.
        causal: its source counts half of the attention.
        unstated: columns it leaves empty.
        mfu: model FLOP utilisation as its source states it, of the peak it names.
    """

    row: str
    model: str
    workload: Workload
    machine: Machine
    tokens_per_second: float | None
    measured_from: str | None
    assumed: tuple[str, ...] = ()
    causal: bool = False
    unstated: frozenset[str] = frozenset()
    mfu: float | None = None


@dataclass(frozen=True)
class Table:
    """A file's rows: those that can be predicted, and the reason for each that cannot."""

    runs: tuple[PublishedRun, ...]
    refused: Mapping[str, str]


def read_published(file: Path) -> Table:
    """Every row of a CSV with the columns of a table of published runs (missing columns count as empty).

    A row that lacks what a prediction cannot do without, or has a cell that is no number, is refused with the row's
    and the column's name; the others go on.

    Raises:
        InputError: the file cannot be read, is empty, or lacks a column that no row can do without.
    """
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            columns, rows = reader.fieldnames or [], list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot read {file}: {error}") from error
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise InputError(f"{file} has no columns {missing}; it has {list(columns)}")
    if not rows:
        raise InputError(f"{file} has no rows")
    runs: list[PublishedRun] = []
    refused: dict[str, str] = {}
    for number, cells in enumerate(rows, start=2):  # line 1 is the header
        name = (cells.get("row_id") or "").strip() or f"line {number}"
        if name in refused or any(run.row == name for run in runs):
            name = f"{name} (line {number})"
        try:
            runs.append(read_row(name, cells))
        except InputError as error:
            refused[name] = str(error)
    return Table(runs=tuple(runs), refused=refused)


class _Cells:
    """One row's cells by column; remembers what had to be assumed."""

    def __init__(self, row: str, cells: Mapping[str, str | None]) -> None:
        self.row, self._cells = row, cells
        self.assumed: list[str] = []

    def text(self, column: str) -> str:
        value = self._cells.get(column)
        return value.strip() if isinstance(value, str) else ""

    def number(self, column: str) -> float | None:
        """The cell as a positive number; None where it is empty."""
        text = self.text(column).replace(",", "")
        if not text or text.lower() in {"na", "n/a", "nan", "none", "null", "-", "?"}:
            return None
        try:
            value = float(text)
        except ValueError:
            raise self.refusal(column, f"{text!r} is no number") from None
        if not 0 < value < float("inf"):
            if value == 0:
                return None
            raise self.refusal(column, f"{text!r} must be positive and finite")
        return value

    def parts(self, column: str) -> tuple[int, ...]:
        """A whole number, or several joined by `+` (encoder and decoder)."""
        text = self.text(column)
        try:
            found = tuple(int(float(part)) for part in text.split("+")) if text else ()
        except (ValueError, OverflowError):
            raise self.refusal(column, f"{text!r} is neither a number nor two joined by +") from None
        if any(part < 1 for part in found) or len(found) > 2:
            raise self.refusal(column, f"{text!r} must be one or two positive numbers")
        return found

    def whole(self, column: str) -> int | None:
        value = self.number(column)
        if value is not None and (value != int(value) or value < 1):
            raise self.refusal(column, f"{self.text(column)!r} must be a whole number")
        return None if value is None else int(value)

    def needed(self, column: str) -> int:
        value = self.whole(column)
        if value is None:
            raise self.refusal(column, "is empty, and nothing can be predicted without it")
        return value

    def assume(self, column: str, value: object, why: str = "") -> None:
        self.assumed.append(f"{column} {value}" + (f" ({why})" if why else ""))

    def refusal(self, column: str, what: str) -> InputError:
        return InputError(f"row {self.row}, column {column}: {what}")


def read_row(row: str, cells: Mapping[str, str | None]) -> PublishedRun:
    """One row.

    Raises:
        InputError: with the row and the column at fault.
    """
    table = _Cells(row, cells)
    model = table.text("model")
    if not model:
        raise table.refusal("model", "is empty")
    architecture = table.text("arch").lower()
    if architecture not in {"", "decoder", "decoder-moe", "encoder-decoder"}:
        raise table.refusal(
            "arch", f"{architecture!r} has no FLOP count here; known: decoder, decoder-moe, encoder-decoder"
        )
    chips = table.needed("chips")
    slices = table.whole("slices") or 1
    try:
        where = machine(table.text("hardware"), chips, slices)
    except InputError as error:
        raise table.refusal("hardware", str(error)) from error
    shape, active = _shape(table, model, architecture)
    lengths = table.parts("seq_len")
    if not lengths:
        lengths = (DEFAULT_SEQUENCE,)
        table.assume("seq_len", DEFAULT_SEQUENCE)
    other = _settings(table.text("other_parallelism"))
    mesh, context = _mesh(table, chips, slices, other)
    batch = _global_batch(table, mesh, chips, lengths[-1], context)
    software = table.text("framework").lower()
    window, windowed = next(
        ((window, share) for name, window, share in WINDOWS if model.lower().startswith(name)), (0, 0.0)
    )
    weights = table.text("weight_dtype").lower()
    workload = Workload(
        shape=shape,
        sequence=lengths[-1],
        inputs=lengths[0] if shape.family == "t5" else 0,
        global_batch=batch,
        mesh=mesh,
        micro_steps=max(1, int(other.get("grad_accum", "1") or 1)) if other.get("grad_accum", "1").isdigit() else 1,
        context=context,
        recompute=read_remat(table, software),
        precision=_precision(table, software),
        weight_bytes=2 if weights in {"bfloat16", "bf16", "float16", "fp16"} else 4,
        replicated_weights=other.get("sharding", "").upper() == "SHARD_GRAD_OP",
        optimizer=_optimizer(table),
        software=software,
        active_parameters=active,
        window=window,
        windowed=windowed,
        logit_chunks=8 if software == "maxtext" else 1,
        capacity=_capacity(table),
        generation=table.text("source_repo").lower(),
        eager=_eager(table, software),
        overlapped_tensor=bool(re.search(r"async\s*tp", table.text("note").lower())),
    )
    causal = "causal" in table.text("attention_flops_convention").lower()
    speed, column = _measured(table, workload, where, causal)
    return PublishedRun(
        row=row,
        model=model,
        workload=workload,
        machine=where,
        tokens_per_second=speed,
        measured_from=column,
        assumed=tuple(table.assumed),
        causal=causal,
        unstated=frozenset(name for name in JUDGED if not table.text(name)),
        mfu=_stated_mfu(table),
    )


def _stated_mfu(table: _Cells) -> float | None:
    share = table.number("mfu_computed") or table.number("mfu_published")
    return None if share is None else share / 100 if share > 1 else share


def _settings(text: str) -> dict[str, str]:
    """`a=1;b=2` as a mapping."""
    return {key.strip().lower(): value.strip() for key, _, value in (part.partition("=") for part in text.split(";"))}


def _shape(table: _Cells, model: str, architecture: str) -> tuple[ModelShape, float | None]:
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


def _mesh(table: _Cells, chips: int, slices: int, other: Mapping[str, str]) -> tuple[Mesh, int]:
    """The axes a row names; what they leave open becomes fsdp, the axis that published runs use for it."""
    named = {name: table.whole(name) for name in ("fsdp", "tensor", "data", "pipeline", "expert")}
    context = 1
    for key in ("context", "cp"):
        if other.get(key, "").isdigit():
            context = max(1, int(other[key]))
    if other.get("fsdp_transpose", "").isdigit():
        named["fsdp"] = (named["fsdp"] or 1) * int(other["fsdp_transpose"])
    tpu = table.text("hardware").lower().find("tpu") >= 0
    given = prod(value or 1 for value in named.values()) * context
    if named["data"] is None and tpu and slices > 1 and chips % (given * slices) == 0:
        named["data"], given = slices, given * slices  # slices are joined by data parallelism unless a row says else
        table.assume("data", slices)
    if named["fsdp"] is None or given != chips:
        rest, left = divmod(chips, given // (named["fsdp"] or 1))
        if left or rest < 1:
            fixed = {name: value for name, value in named.items() if value not in (None, 1)}
            table.assume("mesh", f"fsdp {chips}", f"{fixed} with context {context} do not divide {chips} chips")
            named, rest, context = dict.fromkeys(named, 1), chips, 1
        if named["fsdp"] != rest:
            table.assume("fsdp", rest)
        named["fsdp"] = rest
    lengths = {name: value or 1 for name, value in named.items()}
    lengths["fsdp"] *= context
    if slices > 1 and lengths["data"] % slices == 0 and tpu:
        return Mesh(**{**lengths, "data": lengths["data"] // slices}, slices=slices), context
    return Mesh(**lengths), context


def _global_batch(table: _Cells, mesh: Mesh, chips: int, sequence: int, context: int) -> float:
    batch = table.number("global_batch")
    if batch is not None:
        return batch
    per_device = table.number("per_device_batch")
    if per_device is not None:
        return per_device * mesh.batch_shards / context
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


def _capacity(table: _Cells) -> float:
    """The capacity factor of a mixture, which stands only in the remarks (`capacity_factor 1.25`)."""
    found = re.search(r"capacity(?:[_ ]factor)?[ =]+(\d+(?:\.\d+)?)", table.text("note").lower())
    return max(1.0, float(found[1])) if found else 1.0


def _precision(table: _Cells, software: str) -> str:
    name = table.text("precision").lower() or "bf16"
    return DEFAULT_SCALING.get((software, name), name)


def _eager(table: _Cells, software: str) -> bool:
    """PyTorch without a compiler: the remarks say so, or the framework's habit does."""
    note = table.text("note").lower()
    return "eager" in note or (software in EAGER and "compile" not in note)


def _optimizer(table: _Cells) -> Optimizer:
    name = table.text("optimizer").lower()
    if "8bit" in name or "8-bit" in name:
        return Optimizer.ADAMW_8BIT
    return Optimizer.ADAFACTOR if "adafactor" in name else Optimizer.ADAMW


def read_remat(table: _Cells, software: str) -> Recompute:
    """The recomputation policy of a row, from MaxText's, llm-foundry's and torchtitan's names for it.

    `custom(…)` and `save_…`/`…_offloaded` name what is kept; the rest is computed again. JAX drops from the second
    forward pass what the backward pass does not use, which is a layer's last product.
    """
    text = table.text("remat_policy").lower()
    again = policy(Remat.FULL, software)
    if not text:
        if software in {"maxtext", "maxdiffusion"}:
            table.assume("remat_policy", "full", "MaxText's default")
            return again
        return NOTHING
    if text in {"none", "no", "false", "off"}:
        return NOTHING
    if text in {"full", "true", "yes"}:
        return again
    if "per op" in text:  # torchtitan: products kept every second time, attention kept
        return Recompute(elementwise=1, mlp=0.25, qkv=0.5)
    if text.startswith("selective"):  # torchtitan: every second layer
        return Recompute(qkv=0.5, output=0.5, mlp=0.5, scores=0.5, elementwise=0.5)
    if text.startswith("minimal"):
        offloaded = 6.0 if "offload" in text else 0.0
        return Recompute(elementwise=1, offloaded=offloaded)
    if text.startswith(("custom", "save", "qkv", "offload")) or "offload" in text:
        return _kept(text, again)
    table.assume("remat_policy", "full", f"{text!r} is not known")
    return again


def _kept(text: str, again: Recompute) -> Recompute:
    """What a list of kept names leaves to be computed again."""
    kept = set(re.findall(r"[a-z_]+", text))
    redone = {name for name, how in re.findall(r"([a-z_]+)=([a-z]+)", text) if how == "remat"}
    kept -= redone
    qkv = bool(kept & {"qkv", "qkv_proj_offloaded", "save_qkv_proj", "save_dot_except_mlp"}) or {"q", "k", "v"} <= kept
    qkv = qkv or {"query_proj", "key_proj", "value_proj"} <= kept
    output = bool(kept & {"out_proj", "save_out_proj", "save_dot_except_mlp"})
    mlp = 0.0 if any(name.startswith(("mlpwi", "mlp_wi")) for name in kept) else again.mlp
    host = "offload" in text
    widths = (1.0 if "decoder_layer_input" in kept else 0.0) + (1.5 if qkv else 0.0) + (1.0 if output else 0.0)
    return replace(again, qkv=0 if qkv else 1, output=0 if output else 1, mlp=mlp, offloaded=widths if host else 0.0)


def _measured(table: _Cells, workload: Workload, where: Machine, causal: bool) -> tuple[float | None, str | None]:
    """Tokens per second of one chip, from the most direct column that is filled.

    A rate in FLOP/s is turned into tokens by the row's own convention of counting attention.
    """
    step = table.number("step_time_s")
    if step is not None and table.text("global_batch"):
        return workload.tokens / step / workload.chips, "step_time_s"
    speed = table.number("tokens_per_s_per_chip")
    if speed is not None:
        return speed, "tokens_per_s_per_chip"
    if step is not None and table.text("per_device_batch"):
        return workload.tokens / step / workload.chips, "step_time_s"
    per_token = workload.flops_per_token(causal=causal)
    tera = table.number("tflops_per_s_per_chip")
    if tera is not None:
        return tera * 1e12 / per_token, "tflops_per_s_per_chip"
    for column in ("mfu_computed", "mfu_published"):
        share = table.number(column)
        if share is not None:
            share = share / 100 if share > 1 else share
            return share * where.peak(workload.format) / per_token, column
    return None, None


def only_measured(runs: Iterable[PublishedRun]) -> list[PublishedRun]:
    """The runs that say how fast they were."""
    return [run for run in runs if run.tokens_per_second is not None]
