"""Strict reading of YAML and TOML declarations: no unknown or duplicate key, and errors name file and key."""

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from capibara_assets.deployment.documents import read_document
from capibara_assets.deployment.locations import resources_root
from capibara_assets.deployment.yaml_text import load_yaml
from capibara_assets.errors import InputError, in_words

Model = TypeVar("Model", bound=BaseModel)


class Declared(BaseModel):
    """Base of declared models: frozen; an unknown key is refused with a suggestion of the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_key(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            for key in values:
                if key not in cls.model_fields:
                    near = difflib.get_close_matches(str(key), cls.model_fields, n=1)
                    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(cls.model_fields)}"
                    raise ValueError(f"unknown key {key!r}: {hint}")
                if isinstance(values[key], bool) and not _may_be_true(cls.model_fields[key].annotation):
                    raise ValueError(f"{key} is {str(values[key]).lower()}, expected a value that is no truth value")
        return values


def _may_be_true(annotation: Any) -> bool:
    """Whether a field's type has truth values, which Pydantic else takes for 0 and 1."""
    if annotation in (bool, Any) or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return True  # what is no model is refused by the model
    return any(each is True or each is False or _may_be_true(each) for each in get_args(annotation))


def read_mapping(file: Path) -> dict[str, Any]:
    """The mapping in a YAML or TOML file (by its ending); an empty file gives an empty mapping.

    With `extends: NAME` it is that of NAME.yaml beside it, but for the keys given here; of a key that is a mapping in
    both, its own keys are replaced.

    Raises:
        InputError: the file cannot be read, is no YAML or TOML, no mapping, or gives a key twice.
    """
    try:
        if file.suffix == ".toml":
            return tomllib.loads(read_document(file).decode("utf-8"))
        values = load_yaml(read_document(file).decode("utf-8"), _StrictLoader)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file} is not TOML: {error}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{file} is not YAML: {_yaml_problem(error)}") from error
    except (ValueError, RecursionError) as error:  # no text; TOML with a number of 5000 digits, or nested deep
        kind = "TOML" if file.suffix == ".toml" else "YAML"
        raise InputError(f"{file} is not {kind}: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict | None):
        raise InputError(f"{file}: expected a mapping of keys to values, found a {type(values).__name__}")
    values = values or {}
    if (name := values.pop("extends", None)) is None:
        return values
    if name == file.stem:
        raise InputError(f"{file} extends itself: name another file beside it")
    base = read_mapping(file.parent / f"{name}.yaml")
    both = {
        key: base[key] | own for key, own in values.items() if isinstance(own, dict) and isinstance(base.get(key), dict)
    }
    return base | values | both


def read_value(text: str, source: object) -> Any:
    """Parse text as a YAML value: a number, true, null, text, a list, or a mapping without duplicate keys.

    Raises:
        InputError: it is no YAML.
    """
    try:
        return load_yaml(text, _StrictLoader)
    except yaml.YAMLError as error:
        raise InputError(f"{source}: {text!r} is no value: {_yaml_problem(error)}") from error


def _yaml_problem(error: yaml.YAMLError) -> str:
    """What is wrong, and where, in one line."""
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else str(problem)


def declared(model: type[Model], values: Mapping[str, Any], source: object) -> Model:
    """Validate `values` as a `model`; `source` names their origin in errors.

    Raises:
        InputError: a key that is unknown or missing, or a value that does not fit; all of them are named.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{source}: {in_words(error)}") from error


def read_declared(file: Path, model: type[Model]) -> Model:
    """Read a file and validate it as a `model`; raises as `read_mapping` and `declared`."""
    return declared(model, read_mapping(file), file)


def shipped_recipe(name: str, model: type[Model]) -> Model:
    """The recipe of this name in the shipped resources (`training-demo`, `dataset`, …); raises as `read_declared`."""
    return read_declared(resources_root() / "recipes" / f"{name}.yaml", model)


class _StrictLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML without duplicate keys (plain YAML keeps the last one and says nothing)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", node.start_mark)
        return dict(super().construct_mapping(node, deep))
