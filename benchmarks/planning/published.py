"""Published training runs from a CSV: each row a workload, a machine and what was measured, or the reason why not."""

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.planning.machines import machine
from benchmarks.planning.published_cells import Cells
from benchmarks.planning.published_remat import read_remat
from benchmarks.planning.published_shape import (
    VIRTUAL,
    read_global_batch,
    read_mesh,
    read_passes,
    read_shape,
    setting,
)
from capibara_assets.errors import InputError
from capibara_assets.planning.conventions import Method, Optimizer
from capibara_assets.planning.hardware.machine import Machine
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.workload import Workload

REQUIRED = ("hardware", "chips", "model", "layers", "d_model", "n_heads")
MEASURED = ("step_time_s", "tokens_per_s_per_chip", "tflops_per_s_per_chip", "mfu_published", "mfu_computed")
# Columns that memory depends on.
JUDGED = (
    *("seq_len", "per_device_batch", "global_batch", "fsdp", "tensor"),
    *("remat_policy", "weight_dtype", "optimizer"),
)
DEFAULT_SEQUENCE = 4096
DEFAULT_RANK = 16
# Sliding-window attention that the columns cannot say: (name's beginning, window, share of layers), from the models'
# own configurations (sliding_window, layer_types).
WINDOWS = (("gemma2", 4096, 1 / 2), ("gemma3", 1024, 5 / 6), ("gemma4", 1024, 5 / 6), ("gptoss", 128, 1 / 2))
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
    text = _text(file)
    header = text.partition("\n")[0]
    try:
        reader = csv.DictReader(text.splitlines(), delimiter=max(",;\t", key=header.count))
        columns = [name.strip().lower() for name in reader.fieldnames or []]
        reader.fieldnames = columns
        rows = list(reader)
    except csv.Error as error:
        raise InputError(f"cannot read {file}: {error}") from error
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise InputError(f"{file} has no columns {missing}; it has {list(columns)}")
    if not rows:
        raise InputError(f"{file} has no rows")
    runs: list[PublishedRun] = []
    refused: dict[str, str] = {}
    for number, cells in enumerate(rows, start=2):  # line 1 is the header
        name = "".join(filter(str.isprintable, cells.get("row_id") or "")).strip() or f"line {number}"
        if name in refused or any(run.row == name for run in runs):
            name = f"{name} (line {number})"
        try:
            runs.append(read_row(name, cells))
        except InputError as error:
            refused[name] = str(error)
    return Table(runs=tuple(runs), refused=refused)


def _text(file: Path) -> str:
    """The file's text: UTF-8, or UTF-16 where a byte-order mark says so (spreadsheets export both).

    Raises:
        InputError: unreadable, or in another encoding.
    """
    try:
        raw = file.read_bytes()
        return raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig").replace("\0", "")
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8") from error


def read_row(row: str, cells: Mapping[str, str | None]) -> PublishedRun:
    """One row.

    Raises:
        InputError: with the row and the column at fault.
    """
    table = Cells(row, cells)
    model = table.text("model")
    if not model:
        raise table.refusal("model", "is empty")
    architecture = read_architecture(table)
    chips = table.needed("chips")
    slices = table.whole("slices") or 1
    try:
        where = machine(table.text("hardware"), chips, slices)
    except InputError as error:
        raise table.refusal("hardware", str(error)) from error
    shape, active = read_shape(table, model, architecture)
    lengths = table.parts("seq_len")
    if not lengths:
        lengths = (DEFAULT_SEQUENCE,)
        table.assume("seq_len", DEFAULT_SEQUENCE)
    other = _settings(table.text("other_parallelism"))
    software = re.sub(r"\s+", "-", table.text("framework").lower())
    mesh, context = read_mesh(table, chips, slices, other, software, tpu=where.kind == "tpu")
    batch = read_global_batch(table, mesh, chips, lengths[-1], context, software)
    adapters = read_lora(table, other, shape)
    window, windowed = next(
        ((window, share) for name, window, share in WINDOWS if plain_model(model).startswith(name)), (0, 0.0)
    )
    weights = table.text("weight_dtype").lower()
    workload = Workload(
        shape=shape,
        sequence=lengths[-1],
        inputs=lengths[0] if shape.family == "t5" else 0,
        global_batch=batch,
        mesh=mesh,
        micro_steps=read_passes(table, mesh, chips, batch, context, other, software),
        virtual_stages=setting(other, VIRTUAL) or 1,
        context=context,
        recompute=read_remat(table, software),
        precision=_precision(table, software),
        weight_bytes=2 if weights in {"bfloat16", "bf16", "float16", "fp16"} else 4,
        replicated_weights=other.get("sharding", "").upper() == "SHARD_GRAD_OP",
        optimizer=_optimizer(table),
        method=Method.FULL if adapters is None else Method.LORA,
        lora_rank=adapters or 0,
        lora_modules=() if adapters is None else tuple(module.name for module in shape.linear_modules),
        software=software,
        active_parameters=active,
        window=window,
        windowed=windowed,
        logit_chunks=8 if software == "maxtext" else 1,
        capacity=_capacity(table),
        generation=table.text("source_repo").lower(),
        eager=_eager(table, software),
        prefix=architecture == "encoder",
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


ARCHITECTURES = {
    "decoder": ("", "decoder", "decoder-only", "dense", "dense-decoder", "causal", "causal-lm", "transformer", "gpt"),
    "decoder-moe": ("decoder-moe", "moe", "moe-decoder", "mixture-of-experts", "sparse", "decoder-only-moe"),
    "encoder-decoder": ("encoder-decoder", "enc-dec", "seq2seq", "t5"),
    "encoder": ("encoder", "encoder-only", "bert"),
}


def read_architecture(table: Cells) -> str:
    """The kind of model: one of `ARCHITECTURES`.

    Raises:
        InputError: one whose FLOPs cannot be counted from the columns.
    """
    text = table.text("arch").lower()
    plain = re.sub(r"[^a-z0-9]+", "-", text).strip("-")
    for name, spellings in ARCHITECTURES.items():
        if plain in spellings:
            return name
    raise table.refusal("arch", f"{text!r} has no FLOP count here; known: {', '.join(ARCHITECTURES)}")


def read_lora(table: Cells, other: Mapping[str, str], shape: ModelShape) -> int | None:
    """The rank of a run's adapters; None where all weights are trained.

    That it is LoRA stands in the settings, the model's name or the remarks, since no column says it.
    """
    told = " ".join((table.text("model"), table.text("note"), table.text("other_parallelism"))).lower()
    if not re.search(r"(?<![a-z])q?lora(?![a-z])", told):
        return None
    rank = re.search(r"(?:rank|\br|lora)[ =]*(\d+)", told)
    found = min(int(rank[1]), shape.hidden) if rank and int(rank[1]) else DEFAULT_RANK
    table.assume("method", f"LoRA of rank {found} on all linear layers")
    return found


def _stated_mfu(table: Cells) -> float | None:
    share = table.number("mfu_computed") or table.number("mfu_published")
    return None if share is None else share / 100 if share > 1 else share


def _settings(text: str) -> dict[str, str]:
    """`a=1;b=2` as a mapping; commas, bars and spaces before a name separate, too."""
    parts = (part.partition("=") for part in re.split(r"[;,|]|\s+(?=\w+=)", text))
    return {key.strip().lower(): value.strip() for key, _, value in parts}


def _capacity(table: Cells) -> float:
    """The capacity factor of a mixture, which stands only in the remarks (`capacity_factor 1.25`)."""
    found = re.search(r"capacity(?:[_ ]factor)?[ =]+(\d+(?:\.\d+)?)", table.text("note").lower())
    return max(1.0, float(found[1])) if found else 1.0


def _precision(table: Cells, software: str) -> str:
    name = table.text("precision").lower() or "bf16"
    # Block-scaled and 4-bit formats are computed as 8-bit ones here; other spellings of 8 bits.
    name = re.sub(r"^(mxfp8|nvfp4|mxfp4|fp4|float8|fp8mx|f8)", "fp8", name)
    name = "fp32" if name in {"float32", "f32"} else name
    return DEFAULT_SCALING.get((software, name), name)


def _eager(table: Cells, software: str) -> bool:
    """PyTorch without a compiler: the remarks say so, or the framework's habit does."""
    note = table.text("note").lower()
    return "eager" in note or (software in EAGER and "compile" not in note)


def _optimizer(table: Cells) -> Optimizer:
    name = table.text("optimizer").lower()
    if "8bit" in name or "8-bit" in name:
        return Optimizer.ADAMW_8BIT
    return Optimizer.ADAFACTOR if "adafactor" in name else Optimizer.ADAMW


def _measured(table: Cells, workload: Workload, where: Machine, causal: bool) -> tuple[float | None, str | None]:
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


def run_digest(run: PublishedRun) -> str:
    """A short digest of a run's settings and result: two rows that say the same have the same."""
    load = run.workload
    told = (
        run.model,
        run.machine.family,
        load.chips,
        load.sequence,
        round(load.global_batch, 6),
        str(load.mesh),
        load.precision,
        load.software,
        load.micro_steps,
        None if run.tokens_per_second is None else float(f"{run.tokens_per_second:.5g}"),
    )
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]


def plain_model(name: str) -> str:
    """A model's name in letters and digits, without its publisher."""
    return re.sub(r"[^a-z0-9]", "", name.lower().rpartition("/")[2])


def model_keys(run: PublishedRun) -> tuple[str, str]:
    """What a run's model is known by: its name in any spelling, and its sizes."""
    shape = run.workload.shape
    sizes = (shape.layers, shape.encoder_layers, shape.hidden, shape.heads, shape.kv_heads, shape.intermediate)
    return plain_model(run.model), "x".join(map(str, (*sizes, shape.experts)))


def model_groups(runs: Sequence[PublishedRun]) -> list[int]:
    """A number for each run: runs of one model have the same, by its name in any spelling or by its sizes."""
    firsts: dict[str, int] = {}
    groups: list[int] = []
    for index, run in enumerate(runs):
        keys = model_keys(run)
        known = sorted({firsts[key] for key in keys if key in firsts})
        first = known[0] if known else index
        groups = [first if group in known else group for group in groups] + [first]
        firsts = {key: first if group in known else group for key, group in firsts.items()} | dict.fromkeys(keys, first)
    return groups
