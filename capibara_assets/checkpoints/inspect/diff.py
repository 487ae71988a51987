"""Differences of two checkpoints per tensor, per layer, and for LoRA per weight change; streamed, in float64."""

import hashlib
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np

from capibara_assets.checkpoints.content import Content, PieceSource, itemsize, numpy_dtype
from capibara_assets.checkpoints.inspect.delta import DeltaDiff, deltas
from capibara_assets.checkpoints.store.checkpoint import Checkpoint
from capibara_assets.checkpoints.store.reading import StoredSource, piece_lengths
from capibara_assets.checkpoints.tree import plain_values

_BLOCK = 1 << 16  # elements per block: half a MiB of float64, which stays in the cache
_NUMBERED = re.compile(r"^(.*?(?:^|[./_-])\d+)(?=[./]|$)")
_PREFIX = re.compile(r"^base_model\.model\.")
_LORA = re.compile(r"\.lora_.*$")

Wide = np.ndarray[Any, Any]  # float64, or complex128
Status = Literal["equal", "changed", "other dtype", "other shape"]


@dataclass(frozen=True)
class Side:
    """One of the two checkpoints.

    Attributes:
        name: the user's name of it.
        content: its tensors and files.
        store: address of its store; None: it is not in one. Two sides of one store are read only where the digests of
            their pieces differ.
    """

    name: str
    content: Content
    store: str | None = None


@dataclass(frozen=True)
class TensorDiff:
    """Difference of one tensor that both sides have.

    Distances are sums in float64 over the elements that are finite on both sides. They are None where nothing was
    read (equal), where shapes differ, and where float64 cannot hold them; `relative` and `cosine` also where a norm
    that they divide by is 0.
    """

    name: str
    layer: str
    status: Status
    dtypes: tuple[str, str]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    l2: float | None = None
    """Euclidean norm of B - A."""
    relative: float | None = None
    """`l2` over the norm of A."""
    max_abs: float | None = None
    cosine: float | None = None
    norms: tuple[float | None, float | None] = (None, None)
    differing: int = 0
    """Number of elements that differ; NaN differs from everything."""
    elements: int = 0
    not_finite: tuple[int, int] = (0, 0)
    """Numbers of NaN and infinite elements of A and of B."""


@dataclass(frozen=True)
class LayerDiff:
    """Difference of a layer: all its differing tensors together."""

    layer: str
    tensors: int
    """Tensors of the layer that both sides have."""
    changed: int
    l2: float | None
    relative: float | None
    """Distance over the norm of A, both over the tensors that differ."""
    max_abs: float | None
    not_finite: tuple[int, int]
    delta_l2: float | None = None
    """For adapters: Euclidean distance of the weight changes, scale * B @ A, of its modules."""
    delta_relative: float | None = None


@dataclass(frozen=True)
class NameDiff:
    """Names that only one side has, and names whose values differ."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True)
class Diff:
    """All differences of B from A."""

    a: str
    b: str
    tensors: tuple[TensorDiff, ...]
    """Tensors of both sides, also equal ones, by name."""
    added: tuple[str, ...]
    removed: tuple[str, ...]
    layers: tuple[LayerDiff, ...]
    """Layers that differ, most first: new non-finite numbers, then relative distance (for LoRA of weight changes)."""
    deltas: tuple[DeltaDiff, ...]
    files: NameDiff
    values: NameDiff
    """Numbers and strings of the nested state, such as a learning rate."""
    notes: tuple[str, ...] = ()
    """What could not be compared, and why."""

    @property
    def equal(self) -> bool:
        """Whether both are equal to the bit."""
        changed = any(tensor.status != "equal" for tensor in self.tensors) or any(one.l2 != 0 for one in self.deltas)
        return not (changed or self.added or self.removed or self.files or self.values)


def stored_side(name: str, checkpoint: Checkpoint) -> Side:
    """A checkpoint of a store as a side to compare."""
    return Side(name, checkpoint.content(), checkpoint.backing.place.root)


def diff(a: Side, b: Side) -> Diff:
    """Compare two checkpoints; memory holds a few MiB of one tensor at a time.

    Raises:
        InputError: a damaged file of a checkpoint on disk, or an invalid adapter_config.json.
        IntegrityError: stored bytes are not what was written.
    """
    left, right = _named(a.content), _named(b.content)
    tied = a.content.ties.items() & b.content.ties.items()  # the tensor that both share is compared under its own name
    both = sorted(left.keys() & right.keys() - {name for name, _ in tied})
    one_store = a.store is not None and a.store == b.store
    tensors = tuple(_tensor(name, left[name], right[name], one_store) for name in both)
    weight_changes, notes = deltas(
        a.content, b.content, {t.name for t in tensors if t.status == "equal"}, names=(a.name, b.name)
    )
    return Diff(
        a=a.name,
        b=b.name,
        tensors=tensors,
        added=tuple(sorted(right.keys() - left.keys())),
        removed=tuple(sorted(left.keys() - right.keys())),
        layers=_layers(tensors, weight_changes),
        deltas=weight_changes,
        files=_files(a, b),
        values=_values(a.content, b.content),
        notes=notes,
    )


def layer_of(name: str) -> str:
    """The layer a tensor belongs to: its name up to the first numbered part, or else without its last part.

    `model.layers.3.self_attn.q_proj.weight` -> `model.layers.3`; T5X's `target/encoder/layers_0/mlp/wi/kernel` ->
    `target/encoder/layers_0`; `model.norm.weight` -> `model.norm`. PEFT's prefix does not count.
    """
    name = _LORA.sub("", plain := _PREFIX.sub("", name))
    if numbered := _NUMBERED.match(name):
        return numbered.group(1)
    return re.sub(r"[./][^./]+$", "", plain) if name == plain else name


def _named(content: Content) -> dict[str, PieceSource]:
    """Every tensor by name, tied names included."""
    return dict(content.tensors) | {name: content.tensors[target] for name, target in content.ties.items()}


def _tensor(name: str, a: PieceSource, b: PieceSource, one_store: bool) -> TensorDiff:
    shapes, dtypes = (tuple(a.shape), tuple(b.shape)), (a.dtype, b.dtype)
    layer, elements = layer_of(name), math.prod(b.shape)
    if shapes[0] != shapes[1]:
        return TensorDiff(name, layer, "other shape", dtypes, shapes, elements=elements)
    sums = _Sums()
    if one_store and dtypes[0] == dtypes[1] and isinstance(a, StoredSource) and isinstance(b, StoredSource):
        pairs = list(zip(a.entry.pieces, b.entry.pieces, strict=True))
        same = [number for number, (ours, theirs) in enumerate(pairs) if ours == theirs]
        if len(same) == len(pairs):
            return TensorDiff(name, layer, "equal", dtypes, shapes, elements=elements)
        differ = sorted(set(range(len(pairs))) - set(same))
        if same:
            for piece in _part(a, same).pieces():
                for start in range(0, len(piece), _BLOCK * itemsize(a.dtype)):
                    values = _wide(piece[start : start + _BLOCK * itemsize(a.dtype)], a.dtype)
                    sums.add(values, values)
            a, b = _part(a, differ), _part(b, differ)
    same_bits = dtypes[0] == dtypes[1]
    for ours, theirs in _blocks(a, b):
        x = _wide(ours, a.dtype)
        if dtypes[0] == dtypes[1] and _same(ours, theirs):
            sums.add(x, x)
        else:
            same_bits = False
            sums.add(x, _wide(theirs, b.dtype))
    norm_a, norm_b, l2 = map(math.sqrt, sums.squares)
    known = math.isfinite(sums.dot) and norm_a and norm_b
    return TensorDiff(
        name=name,
        layer=layer,
        status="equal" if same_bits else ("other dtype" if dtypes[0] != dtypes[1] else "changed"),
        dtypes=dtypes,
        shapes=shapes,
        l2=_finite(l2),
        relative=_finite(l2 / norm_a) if norm_a else None,
        max_abs=_finite(sums.largest),
        cosine=_finite(max(-1.0, min(1.0, sums.dot / norm_a / norm_b))) if known else None,
        norms=(_finite(norm_a), _finite(norm_b)),
        differing=sums.differing,
        elements=elements,
        not_finite=(sums.not_finite[0], sums.not_finite[1]),
    )


def _part(source: StoredSource, numbers: list[int]) -> StoredSource:
    """Some pieces of a stored tensor, as a flat tensor."""
    lengths, entry = piece_lengths(source.entry), source.entry
    part = entry.model_copy(
        update={
            "pieces": tuple(entry.pieces[number] for number in numbers),
            "shape": (sum(lengths[number] for number in numbers) // itemsize(entry.dtype),),
        }
    )
    return StoredSource(source.name, part, source.reader)


@dataclass
class _Sums:
    """Sums that distances are computed from, over blocks."""

    squares: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """Of A, B and B - A."""
    dot: float = 0.0
    largest: float = 0.0
    differing: int = 0
    not_finite: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, x: Wide, y: Wide) -> None:
        """Add a block of A and of B; the same object where they are equal to the bit."""
        with np.errstate(over="ignore", invalid="ignore"):
            if y is not x:
                self.differing += int(np.count_nonzero(x != y))
            finite = np.isfinite(x) if y is x else np.isfinite(x) & np.isfinite(y)
            if not finite.all():
                self.not_finite[0] += int(np.count_nonzero(~np.isfinite(x)))
                self.not_finite[1] += int(np.count_nonzero(~np.isfinite(y)))
                x, y = (x[finite],) * 2 if y is x else (x[finite], y[finite])
            if not x.size:
                return
            self.squares[0] += (of_a := _dot(x, x))
            if y is x:
                self.squares[1] += of_a
                self.dot += of_a
                return
            moved = y - x
            self.squares[1] += _dot(y, y)
            self.squares[2] += _dot(moved, moved)
            self.dot += _dot(x, y)
            self.largest = max(self.largest, float(np.abs(moved).max()))


def _blocks(a: PieceSource, b: PieceSource) -> Iterator[tuple[memoryview, memoryview]]:
    """Blocks of the same elements of both sides, for any sizes of pieces and elements."""
    sizes = itemsize(a.dtype), itemsize(b.dtype)
    rest, sources = [memoryview(b""), memoryview(b"")], (a.pieces(), b.pieces())
    while True:
        for side in (0, 1):
            while not rest[side] and (piece := next(sources[side], None)) is not None:
                rest[side] = piece.cast("B")
        count = min(_BLOCK, len(rest[0]) // sizes[0], len(rest[1]) // sizes[1])
        if not count:
            return
        yield rest[0][: count * sizes[0]], rest[1][: count * sizes[1]]
        rest = [rest[side][count * sizes[side] :] for side in (0, 1)]


def _same(ours: memoryview, theirs: memoryview) -> bool:
    """Whether the bytes are equal; faster than comparing memoryviews, which go byte by byte."""
    return bool(np.array_equal(np.frombuffer(ours, np.uint8), np.frombuffer(theirs, np.uint8)))


def _wide(data: memoryview, dtype: str) -> Wide:
    """Elements as float64 (integers beyond 2^53 are rounded), or complex128."""
    array = np.frombuffer(data, numpy_dtype(dtype))
    return array.astype(np.complex128 if dtype.startswith("C") else np.float64)


def _dot(x: Wide, y: Wide) -> float:
    """The real part of <x, y>, summed pairwise; without BLAS, whose threads cost more than they gain here."""
    return float(np.add.reduce(x.view(np.float64) * y.view(np.float64)))


def _finite(value: float) -> float | None:
    """The value; None where float64 overflowed."""
    return value if math.isfinite(value) else None


def _layers(tensors: Iterable[TensorDiff], weight_changes: Iterable[DeltaDiff]) -> tuple[LayerDiff, ...]:
    members: dict[str, list[TensorDiff]] = {}
    for tensor in tensors:
        members.setdefault(tensor.layer, []).append(tensor)
    changes: dict[str, list[DeltaDiff]] = {}
    for change in weight_changes:
        changes.setdefault(layer_of(change.module + ".weight"), []).append(change)
    layers = [
        _layer(layer, members.get(layer, []), changes.get(layer, [])) for layer in members.keys() | changes.keys()
    ]
    moved = [one for one in layers if one.changed or one.delta_l2]
    return tuple(sorted(moved, key=lambda one: (*(-value for value in _rank(one)), one.layer)))


def _layer(layer: str, tensors: list[TensorDiff], changes: list[DeltaDiff]) -> LayerDiff:
    differ = [tensor for tensor in tensors if tensor.status != "equal"]
    measured = [tensor for tensor in differ if tensor.status != "other shape"]
    l2 = _together([tensor.l2 for tensor in measured])
    delta_l2 = _together([change.l2 for change in changes])
    return LayerDiff(
        layer=layer,
        tensors=len(tensors),
        changed=len(differ),
        l2=l2,
        relative=_ratio(l2, _together([tensor.norms[0] for tensor in measured])),
        max_abs=max((tensor.max_abs for tensor in measured if tensor.max_abs is not None), default=None),
        not_finite=(sum(tensor.not_finite[0] for tensor in differ), sum(tensor.not_finite[1] for tensor in differ)),
        delta_l2=delta_l2,
        delta_relative=_ratio(delta_l2, _together([change.norms[0] for change in changes])),
    )


def _together(norms: list[float | None]) -> float | None:
    """The norm of several parts together; None where there is none, or one is unknown."""
    if not norms or any(norm is None for norm in norms):
        return None
    return _finite(math.hypot(*cast("list[float]", norms)))


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _rank(layer: LayerDiff) -> tuple[float, float, float]:
    """Sort key: first layers with new non-finite numbers; then those that moved from 0 or by an unknown distance."""
    l2 = layer.l2 if layer.delta_l2 is None else layer.delta_l2
    relative = layer.relative if layer.delta_l2 is None else layer.delta_relative
    if relative is None:
        relative = 0.0 if l2 == 0 else math.inf
    return float(layer.not_finite[1] > layer.not_finite[0]), relative, l2 if l2 is not None else math.inf


def _files(a: Side, b: Side) -> NameDiff:
    return _by_name(a.content.files, b.content.files, lambda left, right: _sha256(left) != _sha256(right))


def _sha256(source: PieceSource) -> str:
    if isinstance(source, StoredSource) and source.entry.sha256 is not None:
        return source.entry.sha256
    digest = hashlib.sha256()
    for piece in source.pieces():
        digest.update(piece)
    return digest.hexdigest()


def _values(a: Content, b: Content) -> NameDiff:
    left, right = (plain_values(one.tree) if one.tree is not None else {} for one in (a, b))
    return _by_name(left, right, operator.ne)


def _by_name(left: Mapping[str, Any], right: Mapping[str, Any], differ: Callable[[Any, Any], bool]) -> NameDiff:
    changed = sorted(name for name in left.keys() & right.keys() if differ(left[name], right[name]))
    return NameDiff(
        tuple(sorted(right.keys() - left.keys())), tuple(sorted(left.keys() - right.keys())), tuple(changed)
    )
