"""Parse a contender from text: a folder, a checkpoint, an endpoint, an optimised prompt, or an earlier run."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl

from capibara_assets.errors import InputError
from capibara_assets.evaluation.contenders.contenders import (
    Contender,
    EndpointContender,
    Framing,
    Message,
    ModelContender,
    StoredContender,
)
from capibara_assets.evaluation.contenders.endpoints import OLLAMA_URL, OPENAI_URL, Endpoint
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.files import ADAPTER_CONFIG, CONFIG, validate_base
from capibara_assets.storage.foreign import require_plain
from capibara_assets.storage.jsonfiles import is_whole, read_json, user_json, well_formed
from capibara_assets.training.standalone.run import base_folder

FORMS = (
    "a folder (model or LoRA adapter), checkpoint:REF, https://HOST/v1#MODEL, openai:MODEL[@URL], ollama:MODEL[@URL], "
    "a DSPy program (.json), or answers or scores of an earlier run (.json, .jsonl, .parquet, with #CONTENDER where it "
    "holds several)"
)
_ROWS = (".json", ".jsonl", ".parquet")
_IDS = ("item_id", "example_id")


def contender_of(
    text: str,
    *,
    name: str | None = None,
    base: Base | Path | None = None,
    restore: Callable[[str], Path] | None = None,
) -> Contender:
    """The contender that a text names.

    Args:
        text: one of `FORMS`.
        name: what to call it; the text by default.
        base: the model that an adapter or an optimised prompt belongs to, where it does not say so itself.
        restore: checkpoint reference → folder with its files, in Hugging Face's format.

    Raises:
        InputError: the text has none of the forms, or names something that is missing or damaged.
    """
    name = name or text
    if text.startswith("checkpoint:"):
        if restore is None:
            raise InputError(f"{text}: no checkpoint store was given; export it (`capibara checkpoint export`)")
        return _of_folder(name, restore(text.removeprefix("checkpoint:")), base)
    if endpoint := _endpoint(text):
        return EndpointContender(name, endpoint)
    path, _, part = (text, "", "") if Path(text).exists() else text.rpartition("#") if "#" in text else (text, "", "")
    file = Path(path)
    if file.is_dir():
        return _of_folder(name, file, base)
    if not file.exists():
        raise InputError(f"no contender {text!r}: there is no such file or folder; a contender is {FORMS}")
    if file.suffix not in _ROWS:
        raise InputError(f"{file} is a file of no known kind; a contender is {FORMS}")
    if file.suffix == ".json" and (program := _program(file)) is not None:
        if base is None:
            raise InputError(f"{file} is an optimised prompt: name the base model that it is put before")
        return ModelContender(name, base, framing=dspy_framing(program, str(file)))
    return _of_rows(name, file, part or None)


def dspy_framing(program: Mapping[str, Any], source: str) -> Framing:
    """Convert a saved DSPy program to a framing: the signature's instructions, and its demonstrations as turns.

    DSPy writes `program.save("x.json")`: one predictor at the top, or several by name, each with `signature`
    (`instructions`, `fields` in order: inputs first) and `demos`. The last field is the answer; reasoning before it is
    left out, since an answer is graded as it stands.

    Raises:
        InputError: no predictor, several, or a demonstration without question or answer.
    """
    predictors = {"": program} if "signature" in program else _predictors(program)
    if len(predictors) != 1:
        named = ", ".join(predictors) or "none"
        raise InputError(f"{source}: one predictor can be a prompt, this program has {len(predictors)} ({named})")
    predictor = next(iter(predictors.values()))
    signature = predictor["signature"]
    if not isinstance(signature, Mapping) or not isinstance(signature.get("instructions"), str):
        raise InputError(f"{source}: the signature has no instructions")
    listed = (_list(signature.get("fields"), source), _list(predictor.get("demos"), source))
    fields = [(_field_name(field, source), str(field.get("prefix") or "")) for field in listed[0]]
    demos: list[Message] = []
    for number, demo in enumerate(listed[1]):
        demos += _demo_turns(demo, fields, f"{source}, demonstration {number}")
    return Framing(signature["instructions"].strip(), tuple(demos))


def _endpoint(text: str) -> Endpoint | None:
    if text.startswith(("http://", "https://")):
        url, _, model = text.partition("#")
        if not model or not urlsplit(url).hostname:
            raise InputError(f"{text}: say which model the server is to answer with, as in https://host/v1#model")
        return Endpoint("openai", _checked(url, text), model)
    for protocol, default in (("openai", OPENAI_URL), ("ollama", OLLAMA_URL)):
        if text.startswith(f"{protocol}:"):
            model, _, url = text.removeprefix(f"{protocol}:").partition("@")
            if not model:
                raise InputError(f"{text}: expected {protocol}:MODEL or {protocol}:MODEL@URL")
            return Endpoint("openai" if protocol == "openai" else "ollama", _checked(url or default, text), model)
    return None


def _checked(url: str, text: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{text}: {url!r} is no address; expected http://HOST[:PORT][/PATH] or https://")
    if parts.username or parts.password:
        raise InputError("an endpoint's key does not belong into its address: set CAPIBARA_ENDPOINT_KEY")
    return url


def _of_folder(name: str, folder: Path, base: Base | Path | None) -> ModelContender:
    if (folder / ADAPTER_CONFIG).is_file():
        adapter = read_adapter(folder)
        if base is None:
            named = adapter.config.get("base_model_name_or_path")
            if not named:
                raise InputError(f"{folder} is an adapter that names no base model: say which one it belongs to")
            base = base_folder(str(named))
        return ModelContender(name, base, adapter)
    if (folder / CONFIG).is_file():
        validate_base(folder)
        return ModelContender(name, folder)
    raise InputError(f"{folder} holds neither a model ({CONFIG}) nor an adapter ({ADAPTER_CONFIG})")


def _program(file: Path) -> Mapping[str, Any] | None:
    """The DSPy program of a file; None where it holds something else."""
    value = read_json(file)
    if not isinstance(value, Mapping):
        return None
    return value if "signature" in value or _predictors(value) else None


def _predictors(program: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {key: value for key, value in program.items() if isinstance(value, Mapping) and "signature" in value}


def _field_name(field: Any, where: str) -> str:
    """DSPy describes a field by `${name}` unless the author did; its prefix is the name in words."""
    if not isinstance(field, Mapping):
        raise InputError(f"{where}: a field of the signature: expected an object, found {type(field).__name__}")
    described = str(field.get("description") or "")
    if described.startswith("${") and described.endswith("}"):
        return described[2:-1]
    return str(field.get("prefix") or "").strip().rstrip(":").lower().replace(" ", "_")


def _list(value: Any, source: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise InputError(f"{source}: fields and demonstrations are lists, found {type(value).__name__}")
    return value or []


def _demo_turns(demo: Any, fields: Sequence[tuple[str, str]], where: str) -> list[Message]:
    if not isinstance(demo, Mapping):
        raise InputError(f"{where}: expected an object, found {type(demo).__name__}")
    known = [(name, prefix) for name, prefix in fields if name in demo]
    if len(known) < 2 or known[-1][0] != fields[-1][0]:
        names = ", ".join(name for name, _ in fields) or "none"
        raise InputError(f"{where}: expected values of the signature's fields ({names}), found {', '.join(demo)}")
    inputs = [(name, prefix) for name, prefix in known[:-1] if name not in ("reasoning", "rationale")]
    if not inputs:
        raise InputError(f"{where}: there is no question, only an answer")
    question = str(demo[inputs[0][0]])
    if len(inputs) > 1:
        question = "\n".join(f"{prefix or name + ':'} {demo[name]}" for name, prefix in inputs)
    return [{"role": "user", "content": question}, {"role": "assistant", "content": str(demo[known[-1][0]])}]


def _of_rows(name: str, file: Path, part: str | None) -> StoredContender:
    """A stored contender from rows with `item_id` (or `example_id`) and `text` or `score`, else as in `Answer`."""
    rows = list(_rows(file))
    names = sorted({str(row["contender"]) for row in rows if row.get("contender") is not None})
    if part is not None and part not in names:
        raise InputError(f"{file} holds nothing of {part!r}, only of {', '.join(names) or 'unnamed contenders'}")
    if part is None and len(names) > 1:
        raise InputError(f"{file} holds several contenders: choose one, as in {file}#{names[0]} ({', '.join(names)})")
    answers: dict[tuple[str, int], tuple[str, int | None, str]] = {}
    scores: dict[str, float] = {}
    for number, row in enumerate(rows, start=1):
        if part is not None and str(row.get("contender")) != part:
            continue
        where = f"{file}, row {number}"
        item = next((str(row[key]) for key in _IDS if row.get(key) is not None), None)
        if item is None:
            raise InputError(f"{where}: expected an item_id")
        if isinstance(text := row.get("text"), str):
            key = (item, _whole(row, "sample", where) or 0)
            if key in answers:
                raise InputError(f"{where}: a second answer to sample {key[1]} of {item}")
            answers[key] = (well_formed(text), _whole(row, "tokens", where), _finish(row, where))
        elif (score := _score(row)) is not None:
            if item in scores:
                raise InputError(f"{where}: a second score of {item}")
            scores[item] = score
        else:
            raise InputError(f"{where}: expected a text (an answer) or a score (a finite number)")
    if not answers and not scores:
        raise InputError(f"{file} holds no rows")
    if answers and scores:
        raise InputError(f"{file} mixes answers and scores: give one of them")
    return StoredContender(name, file, answers, scores)


def _score(row: Mapping[str, Any]) -> float | None:
    """The score of a row; None where it is no finite number."""
    value = row.get("score")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number beyond all floats
        return None


def _whole(row: Mapping[str, Any], name: str, where: str) -> int | None:
    """A count of a row, None where it has none. Raises InputError: it is another value."""
    value = row.get(name)
    if isinstance(value, float) and value.is_integer():  # as pandas keeps a column with gaps
        value = int(value)
    if value is not None and not is_whole(value):
        raise InputError(f"{where}: {name} is {value!r}, expected a whole number")
    return value


def _finish(row: Mapping[str, Any], where: str) -> str:
    finish = row.get("finish") or "stop"
    if finish not in ("stop", "length"):
        raise InputError(f"{where}: finish is {finish!r}, expected stop or length")
    return str(finish)


def _rows(file: Path) -> Iterable[Mapping[str, Any]]:
    require_plain(file)
    if file.suffix == ".parquet":
        try:
            yield from pl.read_parquet(file).iter_rows(named=True)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise InputError(f"{file} is not a Parquet table: {error}") from error
        return
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise InputError(f"{file} is not {file.suffix[1:].upper()}: {error}") from error
    if file.suffix == ".json":
        values = user_json(text, file)
    else:
        lines = enumerate(text.splitlines(), 1)
        values = [user_json(line, f"{file}:{number}") for number, line in lines if line.strip()]
    if not isinstance(values, list) or not all(isinstance(value, Mapping) for value in values):
        raise InputError(f"{file}: expected a list of objects with item_id and text or score, or a DSPy program")
    yield from values
