"""Nested states of torch split into named tensors and a JSON tree of the rest, and joined again."""

import base64
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch

from capibara_assets.errors import InputError

_SINGLES = (bool, int, str, type(None))
_MOST_REPEATS = 100_000  # of one container in a state; lists that hold another one twice, sixty deep, have no end


def join(keys: tuple[str, ...]) -> str:
    """The name of a tensor in a nested state: keys joined by `/`, escaped as in RFC 6901."""
    return "/".join(key.replace("~", "~0").replace("/", "~1") for key in keys)


def split(name: str) -> tuple[str, ...]:
    """The inverse of `join`."""
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in name.split("/"))


def flatten(state: Any) -> tuple[dict[str, torch.Tensor], Any, dict[str, str]]:
    """Split a state into (tensors by name, tree, ties); a name in `ties` shares the tensor it points to.

    The tree is JSON: `{"tensor": name}`, `{"value": v}`, `{"dict": [[key, tree], ...]}` and so on.

    Raises:
        InputError: something that is neither a tensor nor plain data; the message names its place.
    """
    tensors: dict[str, torch.Tensor] = {}
    ties: dict[str, str] = {}
    seen: dict[tuple[Any, ...], str] = {}
    repeats: Counter[int] = Counter()

    def walk(node: Any, keys: tuple[str, ...]) -> Any:
        if isinstance(node, list | tuple | dict) and node:
            repeats[id(node)] += 1
            if repeats[id(node)] > _MOST_REPEATS:
                raise InputError(
                    f"{join(keys)[:200]}: the state holds one {type(node).__name__} more than "
                    f"{_MOST_REPEATS:,} times: no checkpoint does, it is damaged"
                )
        if isinstance(node, torch.Tensor):
            name = join(keys)
            if node.is_nested:
                raise InputError(f"{name} is a nested tensor, which has no plain bytes: save its parts one by one")
            if name in tensors or name in ties:
                raise InputError(f"two entries of the state are called {name!r}: an integer key and its text")
            identity = _identity(node)
            if identity is not None and identity in seen:
                ties[name] = seen[identity]
            else:
                tensors[name] = node.detach()
                if identity is not None:
                    seen[identity] = name
            if isinstance(node, torch.nn.Parameter):
                return {"parameter" if node.requires_grad else "frozen": name}
            return {"tensor": name}
        if type(node) is OrderedDict and vars(node).keys() == {"_metadata"}:
            # module.state_dict() puts the versions of its modules there, and load_state_dict asks for them
            bare = OrderedDict(node)
            return {"state_dict": {"items": walk(bare, keys), "metadata": walk(vars(node)["_metadata"], keys)}}
        if type(node) in (dict, OrderedDict):
            kind = "odict" if isinstance(node, OrderedDict) else "dict"
            return {kind: [[_key(key, keys), walk(value, (*keys, str(key)))] for key, value in node.items()]}
        if type(node) in (list, tuple):
            kind = type(node).__name__
            return {kind: [walk(value, (*keys, str(index))) for index, value in enumerate(node)]}
        if type(node) in (set, frozenset) and all(isinstance(value, str | int) for value in node):
            return {"set": sorted(node, key=lambda value: (str(type(value)), value))}
        if type(node) is float:
            return {"value": node} if math.isfinite(node) else {"float": str(node)}
        if type(node) in _SINGLES:
            return {"value": node}
        if isinstance(node, bytes):
            return {"bytes": base64.b64encode(node).decode()}
        if isinstance(node, torch.Size):
            return {"size": list(node)}
        if isinstance(node, torch.dtype):
            return {"dtype": str(node).removeprefix("torch.")}
        if isinstance(node, torch.device):
            return {"device": str(node)}
        raise InputError(
            f"{join(keys) or 'the state'} is a {type(node).__module__}.{type(node).__qualname__}: a checkpoint holds "
            "tensors, numbers, text, lists and dictionaries; turn it into these"
        )

    try:
        return tensors, walk(state, ()), ties
    except RecursionError as error:
        raise InputError("the state holds containers that are nested too deep, or within themselves") from error


def unflatten(tree: Any, tensor: Callable[[str], torch.Tensor], ties: Mapping[str, str]) -> Any:
    """Join tree, tensors and ties into the nested state; tied names share one tensor.

    Args:
        tensor: a tensor by its name; called once for each.

    Raises:
        InputError: the tree was written by newer code.
    """
    made: dict[str, torch.Tensor] = {}
    parameters: dict[tuple[str, bool], torch.nn.Parameter] = {}

    def parameter(name: str, trained: bool) -> torch.nn.Parameter:
        name = ties.get(name, name)
        if (name, trained) not in parameters:
            parameters[name, trained] = torch.nn.Parameter(find(name), requires_grad=trained)
        return parameters[name, trained]

    def find(name: str) -> torch.Tensor:
        name = ties.get(name, name)
        if name not in made:
            made[name] = tensor(name)
        return made[name]

    def build(node: Any) -> Any:
        [(kind, value)] = node.items()
        match kind:
            case "tensor":
                return find(value)
            case "parameter" | "frozen":
                return parameter(value, kind == "parameter")
            case "state_dict":
                state = build(value["items"])
                vars(state)["_metadata"] = build(value["metadata"])
                return state
            case "dict":
                return {_unkey(key): build(child) for key, child in value}
            case "odict":
                return OrderedDict((_unkey(key), build(child)) for key, child in value)
            case "list":
                return [build(child) for child in value]
            case "tuple":
                return tuple(build(child) for child in value)
            case "set":
                return set(value)
            case "float":
                return float(value)
            case "value":
                return value
            case "bytes":
                return base64.b64decode(value)
            case "size":
                return torch.Size(value)
            case "dtype":
                return getattr(torch, value)
            case "device":
                return torch.device(value)
            case _:
                raise InputError(f"a checkpoint's tree has a node of kind {kind!r}: it was written by newer code")

    return build(tree)


def tensor_names(tree: Any) -> list[str]:
    """Names of all tensors of a tree, tied ones included, in its order."""
    [(kind, value)] = tree.items()
    if kind in ("tensor", "parameter", "frozen"):
        return [value]
    if kind == "state_dict":
        return tensor_names(value["items"])
    if kind in ("dict", "odict"):
        return [name for _, child in value for name in tensor_names(child)]
    return [name for child in value for name in tensor_names(child)] if kind in ("list", "tuple") else []


def plain_values(tree: Any, keys: tuple[str, ...] = ()) -> dict[str, Any]:
    """Every leaf of a tree that is not a tensor, by name: values that formats of tensors alone cannot carry.

    The versions of modules that `module.state_dict()` notes beside its tensors do not count.
    """
    [(kind, value)] = tree.items()
    if kind in ("tensor", "parameter", "frozen"):
        return {}
    if kind == "state_dict":
        return plain_values(value["items"], keys)
    if kind in ("dict", "odict"):
        children = [((*keys, str(_unkey(key))), child) for key, child in value]
    elif kind in ("list", "tuple"):
        children = [((*keys, str(index)), child) for index, child in enumerate(value)]
    else:
        return {join(keys): value}
    return {name: leaf for place, child in children for name, leaf in plain_values(child, place).items()}


def _identity(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """Key that two names of one tensor share: storage, offset, shape. None: the tensor cannot be shared."""
    if tensor.layout != torch.strided or tensor.is_meta or tensor.numel() == 0:
        return None
    return (
        tensor.device,
        tensor.untyped_storage().data_ptr(),
        tensor.storage_offset(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
    )


def _key(key: Any, keys: tuple[str, ...]) -> Any:
    if type(key) in (str, int):
        return key
    if type(key) is tuple and all(type(part) in (str, int) for part in key):
        return {"tuple": list(key)}
    raise InputError(f"a key of {join(keys) or 'the state'} is {key!r}: keys are text or integers")


def _unkey(key: Any) -> Any:
    return tuple(key["tuple"]) if isinstance(key, dict) else key
