"""What a format cannot carry, said in one way: every such entry is counted and the first few are named."""

from collections.abc import Iterable, Mapping
from typing import Any

from capibara_assets.checkpoints.content import Content, Source
from capibara_assets.checkpoints.tree import plain_values
from capibara_assets.errors import InputError


def listed(names: Iterable[str], most: int = 5) -> str:
    """`a, b and 7 more`."""
    names = list(names)
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def refuse(target: str, names: Iterable[str], what: str, remedy: str) -> None:
    """Nothing, if there are no names.

    Raises:
        InputError: `target` cannot carry these; what they are, and what to do instead.
    """
    found = list(names)
    if found:
        raise InputError(f"{target} cannot carry {len(found)} {what}: {listed(found)}; {remedy}")


def refuse_metadata(content: Content, target: str) -> None:
    """Raises InputError: the safetensors file it came from has text of its own in its header, which would be lost."""
    own = {key for key in content.origin.get("metadata", {}) if key != "format" and key not in content.ties}
    refuse(
        target,
        sorted(own),
        "entries of the safetensors header's __metadata__",
        "write it as huggingface, or remove them from the file first",
    )


NESTED = ("t5x", "orbax")
"""Formats whose nested dictionaries are what others keep under names with points, so these stand for each other."""


def flat_names(content: Content, target: str) -> tuple[Mapping[str, Source], Mapping[str, str]]:
    """(tensors, ties) of a checkpoint that is a flat dictionary of tensors, under its own keys.

    Raises:
        InputError: a nested state, or values that are no tensors; it names them.
    """
    if content.origin.get("format") in NESTED:
        from capibara_assets.checkpoints.formats.nested import flat  # which names what it refuses by this module

        content = flat(content)
    if content.tree is None:
        return content.tensors, content.ties
    remedy = "write it as pytorch or dcp, or take out the part of the state that is a flat dictionary of tensors"

    refuse(target, plain_values(content.tree), "values that are no tensors", remedy)
    node: Any = content.tree
    [(kind, entries)] = node.items()
    if kind == "state_dict":
        [(kind, entries)] = entries["items"].items()
    if kind not in ("dict", "odict"):
        raise InputError(f"{target} holds a dictionary of tensors, this state is a {kind}: {remedy}")
    keys: dict[str, str] = {}
    nested: list[str] = []
    for key, child in entries:
        [(leaf, name)] = child.items()
        if leaf in ("tensor", "parameter", "frozen") and isinstance(key, str):
            keys[name] = key
        else:
            nested.append(str(key))
    refuse(target, nested, "entries that are nested, or whose key is not text", remedy)
    tensors = {keys[name]: content.tensors[name] for name in keys if name in content.tensors}
    ties = {keys[name]: keys[content.ties[name]] for name in keys if name in content.ties}
    return tensors, ties
