"""What manifests say of a checkpoint: sizes, what it shares, its parents though some are gone, and who needs it."""

from typing import Any

from capibara_assets.checkpoints.content import PIECE
from capibara_assets.checkpoints.inspect.describe import Ancestor, ElementType, Neighbour, describe
from capibara_assets.checkpoints.store.manifest import About, CheckpointManifest, TensorEntry
from capibara_assets_tests.checkpoints.test_retention import Saved


def entry(dtype: str, *shape: int, pieces: tuple[str, ...] = ()) -> TensorEntry:
    return TensorEntry(dtype=dtype, shape=shape, pieces=pieces)


def saved(name: str, version: int, tensors: dict[str, TensorEntry], **about: Any) -> Saved:
    files = {"config.json": entry("U8", 5, pieces=("config",))}
    values = {"model": "python", "step": version} | about
    manifest = CheckpointManifest(
        about=About(**values), kind="adapter", tensors=tensors, files=files, ties={"head": "embed"}, created="now",
        origin={"format": "huggingface"},
    )  # fmt: skip
    return Saved(name, version, manifest)


def weights(name: str) -> dict[str, TensorEntry]:
    return {
        "embed": entry("BF16", PIECE // 2 + 1, pieces=("frozen", "frozen-rest")),
        "layers.0.q.weight": entry("F32", 2, 3, pieces=(f"{name}-q",)),
        "layers.0.step": entry("I64", pieces=(f"{name}-step",)),
        "empty": entry("F32", 0, 4),
    }


def test_sizes_types_and_what_is_shared() -> None:
    one, two = saved("one", 1, weights("one")), saved("two", 2, weights("two"))
    again = Saved("two", 3, two.manifest)
    alone = saved("alone", 1, {"x": entry("U8", 5, pieces=("x",))}, model="sql")
    found = describe(two, [one, two, again, alone], stored_bytes=77)
    assert (found.version, found.also, found.kind, found.origin) == (
        "python@v2",
        ("python@v3",),
        "adapter",
        "huggingface",
    )
    assert (found.tensors, found.parameters, found.layers) == (4, PIECE // 2 + 1 + 6 + 1, 3)
    assert found.types == {
        "BF16": ElementType(1, PIECE // 2 + 1, PIECE + 2),
        "F32": ElementType(2, 6, 24),
        "I64": ElementType(1, 1, 8),
    }
    assert found.files == {"config.json": 5}
    assert found.plain_bytes == found.distinct_bytes == PIECE + 2 + 24 + 8 + 5
    assert found.exclusive_bytes == 24 + 8
    assert found.stored_bytes == 77
    assert found.shares == (
        Neighbour("one", "python@v1", 3, PIECE + 2 + 5),
        Neighbour("alone", "sql@v1", 1, 5),
    )


def test_a_piece_that_stands_twice_is_stored_once() -> None:
    twice = {"a": entry("U8", 7, pieces=("same",)), "b": entry("U8", 7, pieces=("same",))}
    found = describe(checkpoint := saved("one", 1, twice), [checkpoint])
    assert (found.plain_bytes, found.distinct_bytes, found.exclusive_bytes) == (19, 12, 12)


def test_parents_are_followed_to_one_that_was_pruned() -> None:
    run = [
        saved("c2", 2, {}, parent="c1", step=20),
        saved("c3", 3, {}, parent="c2", step=30),
        saved("c4", 4, {}, parent="c3", step=40),
    ]
    assert describe(run[2], run).parents == (
        Ancestor("c3", "python@v3", 30),
        Ancestor("c2", "python@v2", 20),
        Ancestor("c1", None, None),
    )


def test_parents_that_go_round_end() -> None:
    run = [saved("a", 1, {}, parent="b"), saved("b", 2, {}, parent="a")]
    assert [one.id for one in describe(run[0], run).parents] == ["b"]


def test_base_and_sources_are_named_both_ways() -> None:
    base = saved("b" * 64, 1, {}, model="base")
    child = saved("c", 1, {}, base_digest="b" * 64, sources={"moe_dataset[python]": "d" * 64})
    assert describe(child, [base, child]).base_version == "base@v1"
    assert describe(base, [base, child]).named_by == ("python@v1",)
    assert describe(child, [child]).base_version is None


def test_ids_from_before_the_store_was_encrypted_are_followed() -> None:
    plain = saved("sealed", 1, {}, model="base")
    base = Saved("sealed", 1, plain.manifest.model_copy(update={"aliases": ("plain",)}))
    child = saved("c", 1, {}, base_digest="plain", parent="plain")
    assert describe(child, [base, child]).base_version == "base@v1"
    assert describe(child, [base, child]).parents == (Ancestor("sealed", "base@v1", 1),)
    found = describe(base, [base, child])
    assert (found.named_by, found.former_ids) == (("python@v1",), ("plain",))
