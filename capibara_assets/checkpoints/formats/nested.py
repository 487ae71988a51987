"""Conversion between a content and the nested dictionaries of JAX formats.

Flat names (`encoder.block.0.weight`, as in torch) are split at their dots when a JAX checkpoint is written. A *note* in
the format's own metadata records that, and what else plain nesting loses (ties, the kind, ordered dictionaries), so
that the same content is read back. Checkpoints of other programs have no note: their names are paths.
"""

import base64
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from capibara_assets.checkpoints.content import Content, PieceSource
from capibara_assets.checkpoints.formats.limits import listed, refuse
from capibara_assets.checkpoints.tree import join, plain_values, split
from capibara_assets.errors import InputError

NESTED = ("t5x", "orbax")
"""Formats whose nested dictionaries correspond to dotted names in other formats."""

_LEAVES = frozenset({"tensor", "parameter", "frozen"})
_PLAIN = frozenset({"dict", "list", "value", "float", "bytes", "tensor"})
"""Kinds of nodes that nesting preserves."""

Refuse = Callable[[tuple[str, ...], Any], str | None]


def nest(content: Content, format: str, kinds: Collection[str], refuse: Refuse) -> tuple[Any, dict[str, Any]]:
    """(nested state with sources as leaves, note).

    Args:
        format: name of the format to write, for messages and to recognise its own `origin`.
        kinds: kinds of tree nodes that the format can hold.
        refuse: (keys, leaf) -> why the format cannot hold that entry; None if it can.

    Raises:
        InputError: entries that the format cannot hold, or names that are both a leaf and a folder; it names them.
    """
    problems: dict[str, str] = {}
    if is_flat(content):
        state: Any = _split(content, problems)
    else:
        state = _build(content.tree, content, kinds, (), problems)
    _check_leaves(state, (), refuse, problems)
    if problems:
        named = listed(f"{name} ({why})" for name, why in problems.items())
        raise InputError(
            f"{format} cannot carry {len(problems)} of the checkpoint's entries: {named}; leave them out, or choose "
            "another format"
        )
    return state, _note(content, format)


def unnest(state: Any, note: Mapping[str, Any], origin: Mapping[str, Any], files: Mapping[str, PieceSource]) -> Content:
    """The content of a nested state with sources as leaves.

    Raises:
        InputError: an entry that a content cannot hold.
    """
    tensors: dict[str, PieceSource] = {}
    tree = _tree(state, (), tensors)
    ties = dict(note.get("ties", {}))
    if note.get("names") == "flat":
        tensors = {".".join(split(name)): source for name, source in tensors.items()}
        tree = None
    return Content(
        tensors={name: source for name, source in tensors.items() if name not in ties},
        kind=note.get("kind", "state"),
        tree=note.get("tree", tree),
        ties=ties,
        files=files,
        origin=note.get("origin", origin),
    )


def flat(content: Content) -> Content:
    """A nested content under flat names: keys joined by dots, as in torch and Hugging Face.

    Raises:
        InputError: a key with a dot in it, or an entry that is not a tensor in a dictionary; it names them.
    """
    if content.tree is None:
        return content
    problems = [f"{name} (plain value)" for name in plain_values(content.tree)]
    problems += [f"{name} (a point in a key)" for name in content.tensors if "." in name and not is_flat(content)]
    problems += _uneven(content.tree, ())
    if problems:
        raise InputError(f"flat names cannot carry {listed(problems)}: leave these out, or keep it nested")
    names = {name: ".".join(split(name)) for name in (*content.tensors, *content.ties)}
    return Content(
        tensors={names[name]: source for name, source in content.tensors.items()},
        kind=content.kind,
        ties={names[name]: names[other] for name, other in content.ties.items()},
        files=content.files,
        origin=content.origin,
    )


def flat_names(content: Content, target: str) -> tuple[Mapping[str, PieceSource], Mapping[str, str]]:
    """(tensors, ties) of a checkpoint that is a flat dictionary of tensors, under its own keys.

    Raises:
        InputError: a nested state, or values that are not tensors; it names them.
    """
    if content.origin.get("format") in NESTED:
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


def is_flat(content: Content) -> bool:
    """Whether it is one dictionary of tensors under dotted names, as `model.state_dict()` returns it."""
    if content.tree is None:
        return True
    if content.origin.get("format") in NESTED:
        return False
    kind, value = _node(content.tree)
    return (
        kind in ("dict", "odict")
        and bool(value)
        and all(isinstance(key, str) and next(iter(child)) in _LEAVES for key, child in value)
        and any("." in key for key, _ in value)
    )


def _node(node: Any) -> tuple[str, Any]:
    """(kind, children or value) of a tree's node; a module's state dictionary counts as a dictionary."""
    [(kind, value)] = node.items()
    return _node(value["items"]) if kind == "state_dict" else (kind, value)


def _split(content: Content, problems: dict[str, str]) -> dict[str, Any]:
    state: dict[str, Any] = {}
    folders: set[tuple[str, ...]] = set()
    leaves: set[tuple[str, ...]] = set()
    for name in (*content.tensors, *content.ties):
        keys = tuple(name.split("."))
        above = [keys[:count] for count in range(1, len(keys))]
        if not all(keys):
            problems[name] = "a part of its name is empty"
        elif keys in folders or any(part in leaves for part in above):
            problems[name] = "a tensor where another name has a folder"
        else:
            folders.update(above)
            leaves.add(keys)
            inner = state
            for key in keys[:-1]:
                inner = inner.setdefault(key, {})
            inner[keys[-1]] = _tensor(content, name)
    return state


def _build(node: Any, content: Content, kinds: Collection[str], keys: tuple[str, ...], problems: dict[str, str]) -> Any:
    kind, value = _node(node)
    if kind not in kinds:
        problems[join(keys) or "the state"] = f"a {kind}"
        return None
    if kind in ("dict", "odict"):
        entries = {}
        for key, child in value:
            if isinstance(key, str):
                entries[key] = _build(child, content, kinds, (*keys, key), problems)
            else:
                problems[join((*keys, str(key)))] = "its key is no text"
        return entries
    if kind in ("list", "tuple"):
        children = (_build(child, content, kinds, (*keys, str(index)), problems) for index, child in enumerate(value))
        return tuple(children) if kind == "tuple" else list(children)
    if kind in _LEAVES:
        return _tensor(content, value)
    if kind == "float":
        return float(value)
    if kind == "bytes":
        return base64.b64decode(value)
    return value


def _check_leaves(node: Any, keys: tuple[str, ...], refuse: Refuse, problems: dict[str, str]) -> None:
    """Add every leaf that the format refuses to `problems`."""
    if isinstance(node, dict | list | tuple) and node:
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            _check_leaves(child, (*keys, str(key)), refuse, problems)
    elif why := refuse(keys, node):
        problems.setdefault(join(keys), why)


def _tensor(content: Content, name: str) -> PieceSource:
    return content.tensors[content.ties.get(name, name)]


def _note(content: Content, format: str) -> dict[str, Any]:
    note: dict[str, Any] = {}
    if is_flat(content):
        note["names"] = "flat"
    if content.tree is not None and (is_flat(content) or not _is_plain(content.tree)):
        note["tree"] = content.tree
    if content.ties:
        note["ties"] = dict(content.ties)
    if content.kind != "state":
        note["kind"] = content.kind
    if content.origin and content.origin.get("format") != format:
        note["origin"] = dict(content.origin)
    return note


def _is_plain(node: Any) -> bool:
    [(kind, value)] = node.items()
    if kind == "dict":
        return all(_is_plain(child) for _, child in value)
    if kind == "list":
        return all(_is_plain(child) for child in value)
    return kind in _PLAIN


def _tree(node: Any, keys: tuple[str, ...], tensors: dict[str, PieceSource]) -> Any:
    if isinstance(node, dict):
        for key in node:
            if not isinstance(key, str):
                raise InputError(f"{join((*keys, str(key)))}: a key that is no text; only texts can be read")
        return {"dict": [[key, _tree(child, (*keys, key), tensors)] for key, child in node.items()]}
    if isinstance(node, list | tuple):
        children = [_tree(child, (*keys, str(index)), tensors) for index, child in enumerate(node)]
        return {"tuple" if isinstance(node, tuple) else "list": children}
    if isinstance(node, bytes):
        return {"bytes": base64.b64encode(node).decode()}
    if isinstance(node, float) and not math.isfinite(node):
        return {"float": str(node)}
    if node is None or isinstance(node, bool | int | float | str):
        return {"value": node}
    name = join(keys)
    tensors[name] = node
    return {"tensor": name}


def _uneven(node: Any, keys: tuple[str, ...]) -> Iterator[str]:
    """Nodes that flat names cannot express: sequences, and empty dictionaries."""
    kind, value = _node(node)
    if kind in ("list", "tuple") or (kind in ("dict", "odict") and not value):
        yield f"{join(keys) or 'the state'} ({'empty' if not value else kind})"
    elif kind in ("dict", "odict"):
        for key, child in value:
            yield from _uneven(child, (*keys, str(key)))
