"""Lengths of a dataset's examples in tokens, without a model: counted by an earlier run, else estimated."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import jinja2.sandbox
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from capibara_assets.datasets.tokens.batches import SCHEMA
from capibara_assets.datasets.tokens.template_process import require_short, shipped_templates
from capibara_assets.datasets.tokens.templates_jinja import JinjaTemplate, failing_as_template
from capibara_assets.errors import InputError
from capibara_assets.storage.foreign import read_by_library, read_document
from capibara_assets.storage.jsonfiles import read_object
from capibara_assets.training.data.order import rank

TOKENS = "tokens"  # folder of tokenised sets within a run's folder of work
_SAMPLE = 96  # examples that an estimate tokenises; the rest by their characters
_DOUBT = 1.5  # estimated lengths up to so many times the longest allowed may be wrong
_MARKER = re.compile(r"{%-?\s*(end)?generation\s*-?%}")  # which answers are supervised; says nothing about lengths

Conversation = list[dict[str, str]]
Render = Callable[[Conversation], str]


@dataclass(frozen=True)
class TokenCounts:
    """Tokens of a dataset's examples.

    Attributes:
        lengths: example id -> tokens, for those that can be trained on.
        supervised_share: of the tokens, those with a loss.
        left_out: examples without tokens: faulty, or longer than the longest allowed.
        exact: whether they are the run's own tokens, and not an estimate.
        source: how they were obtained, for people.
    """

    lengths: Mapping[str, int]
    supervised_share: float
    left_out: int
    exact: bool
    source: str

    def of(self, examples: pl.DataFrame) -> tuple[list[str], list[int]]:
        """Ids and lengths of a part's examples, in the order of their ids."""
        ids = sorted(name for name in examples["example_id"] if name in self.lengths)
        return ids, [self.lengths[name] for name in ids]


def count_tokens(examples: pl.DataFrame, base: Path, max_length: int, work: Path) -> TokenCounts:
    """Tokens of each example: from the tokenised set of an earlier run over the same inputs, else an estimate.

    Args:
        examples: columns `example_id` and `messages`.
        base: folder of the base model, for its tokenizer.
        max_length: longer ones are left out.
        work: the run's folder of work.

    Raises:
        InputError: the base has no tokenizer that can be read, or a message is none.
    """
    return _cached(examples, max_length, work) or _estimated(examples, base, max_length)


def _cached(examples: pl.DataFrame, max_length: int, work: Path) -> TokenCounts | None:
    """The newest tokenised set of exactly these examples. The folder of work belongs to one dataset and one base."""
    ids = examples["example_id"].to_list()
    for file in sorted((work / TOKENS).glob("*.arrow"), key=lambda file: file.stat().st_mtime, reverse=True):
        try:
            table = pyarrow.ipc.open_file(pa.memory_map(str(file))).read_all()
        except (pa.ArrowInvalid, OSError):
            continue  # half written or damaged: the run will replace it
        if not table.schema.equals(SCHEMA) or table["example_id"].to_pylist() != ids:
            continue
        kept = table.filter(pc.is_null(table["left_out"]))
        sizes = pc.list_value_length(kept["input_ids"]).to_pylist()
        if max(sizes, default=0) > max_length:
            continue
        lengths = dict(zip(kept["example_id"].to_pylist(), sizes, strict=True))
        share = (pc.sum(kept["supervised"]).as_py() or 0) / max(1, sum(sizes))
        return TokenCounts(lengths, share, len(ids) - len(lengths), True, "counted: tokenised by an earlier run")
    return None


def _estimated(examples: pl.DataFrame, base: Path, max_length: int) -> TokenCounts:
    """Tokenise a sample through the base's template; estimate the rest by their characters at the sample's rates."""
    from tokenizers import Tokenizer

    file = base / "tokenizer.json"
    if not file.is_file():
        raise InputError(f"{file} is missing: save the base's tokenizer as a fast one (tokenizer.json)")
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:
        raise InputError(f"{file} is not a tokenizer: {error}") from error
    render = _template(base)
    conversations = {
        name: _conversation(name, text) for name, text in examples.select("example_id", "messages").iter_rows()
    }
    sample = sorted(conversations, key=lambda name: rank("tokens", name))[:_SAMPLE]
    known: dict[str, int] = {}
    rendered_characters = plain_characters = turns = supervised = 0
    for name in sample:
        text = _text(render, conversations[name])
        known[name] = len(tokenizer.encode(text, add_special_tokens=False).ids)
        rendered_characters += len(text)
        plain_characters += _characters(conversations[name])
        turns += len(conversations[name])
        answers = [turn["content"] for turn in conversations[name] if turn["role"] == "assistant"]
        supervised += sum(len(tokenizer.encode(answer, add_special_tokens=False).ids) + 1 for answer in answers)
    total = sum(known.values())
    per_character = total / max(1, rendered_characters)
    around_a_turn = (rendered_characters - plain_characters) / max(1, turns)
    lengths = {
        name: known[name]
        if name in known
        else max(1, round((_characters(messages) + around_a_turn * len(messages)) * per_character))
        for name, messages in conversations.items()
    }
    # An estimate near the limit excludes nothing: the run itself will count.
    kept = {
        name: min(length, max_length)
        for name, length in lengths.items()
        if length <= (max_length if name in known else _DOUBT * max_length)
    }
    source = f"estimated: {len(sample)} of {len(lengths)} examples tokenised, the others by their characters"
    if render is None:
        source += "; the base has no chat template, so its own tokens are not counted"
    return TokenCounts(kept, min(1.0, supervised / max(1, total)), len(lengths) - len(kept), False, source)


def _conversation(name: str, text: str) -> Conversation:
    try:
        messages = [{"role": str(turn["role"]), "content": str(turn["content"])} for turn in json.loads(text)]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"example {name}: its messages are not a JSON list of role and content: {error}") from error
    return messages


def _characters(messages: Conversation) -> int:
    return sum(len(turn["content"]) for turn in messages)


def _text(render: Render | None, messages: Conversation) -> str:
    """A conversation rendered by the template; one that it refuses (the run leaves it out) as its plain contents."""
    if render is not None:
        try:
            return render(messages)
        except jinja2.TemplateError:
            pass
    return "\n".join(turn["content"] for turn in messages)


def _template(base: Path) -> Render | None:
    """The base's chat template; one that ships is rendered by Jinja alone: Transformers' own renderer imports torch."""
    config = _config(base)
    file = base / "chat_template.jinja"
    text = config.get("chat_template")
    if file.is_file():
        with read_by_library(f"{file} is no template"):
            text = read_document(file).decode("utf-8")
    if not isinstance(text, str):
        return None
    specials = dict(_specials(config))
    if text not in shipped_templates():
        return JinjaTemplate(require_short(text), specials, ()).text_of
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda _format: ""
    with read_by_library(f"the chat template of base {base} is no template"):
        template = environment.from_string(_MARKER.sub("", text))

    def render(messages: Conversation) -> str:
        with failing_as_template():
            return template.render(messages=messages, add_generation_prompt=False, tools=None, **specials)

    return render


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _config(base: Path) -> dict[str, Any]:
    file = base / "tokenizer_config.json"
    return read_object(file) if file.is_file() else {}


def _specials(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            yield key, text


def percentile(lengths: list[int], q: float) -> int:
    """The q-th percentile of lengths, in whole tokens; 0 for no lengths."""
    return int(np.percentile(lengths, q)) if lengths else 0
