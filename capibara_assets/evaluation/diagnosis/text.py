"""Checks of tokenizer and chat template: another model's, untrained turn markers, ends that do not stop generation."""

import re
from pathlib import Path
from typing import Any

import jinja2

from capibara_assets.datasets.tokens.templates import Tokenizer, control_ids, jinja_template
from capibara_assets.errors import InputError
from capibara_assets.evaluation.diagnosis.catalogue import Diagnosis
from capibara_assets.modeling.files import read_config
from capibara_assets.storage.digests import sha256_file
from capibara_assets.storage.jsonfiles import read_foreign_object

PROBE = (
    {"role": "user", "content": "What is two and two?"},
    {"role": "assistant", "content": "Four."},
)
_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
_MARKER = re.compile(r"<\|[^|<>\s]{1,40}\|>|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>|<｜[^｜<>\s]{1,40}｜>")
_TURN = re.compile(r"user|assistant|system|im_start|header|INST|start_of_turn", re.IGNORECASE)


def check_tokenizers(tokenizer: Tokenizer, reference: Tokenizer, where: Path) -> list[Diagnosis]:
    """Check that a tokenizer gives the ids of its base's tokenizer.

    Args:
        reference: the base's tokenizer; only adding tokens to it is allowed.
        where: the base's folder.
    """
    own, other = tokenizer.get_vocab(), reference.get_vocab()
    moved = sum(own.get(token) != number for token, number in other.items())
    if not moved:
        return []
    finding = f"{moved} of the base's {len(other)} tokens have another id, or none ({where})"
    return [Diagnosis("tokenizer_of_another_model", finding, {"moved": moved, "of": len(other), "base": str(where)})]


def check_special_ids(folder: Path, tokenizer: Tokenizer) -> list[Diagnosis]:
    """Check the ids of bos, eos and pad in config against the tokenizer's, where both state one."""
    config = read_config(folder)
    in_config: dict[str, Any] = {}
    in_tokenizer: dict[str, int] = {}
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        stated, known = config.get(name), getattr(tokenizer, name)
        several = stated if isinstance(stated, list) else [stated]
        if stated is not None and known is not None and known not in several:
            in_config[name], in_tokenizer[name] = stated, known
    if not in_config:
        return []
    parts = ", ".join(f"{name} is {in_config[name]} and {in_tokenizer[name]}" for name in in_config)
    evidence = {"ids_in_config": in_config, "ids_in_tokenizer": in_tokenizer}
    return [Diagnosis("special_ids_differ", f"config.json and tokenizer differ: {parts}", evidence)]


def check_template(tokenizer: Tokenizer) -> list[Diagnosis]:
    """Check that there is a chat template, that it renders every turn, and that its markers are tokens."""
    if not getattr(tokenizer, "chat_template", None):
        return [Diagnosis("template_missing", "the tokenizer has no chat template")]
    try:
        text = rendered(tokenizer, PROBE)
    except InputError as error:
        return [Diagnosis("template_refuses", str(error))]
    lost = [turn["role"] for turn in PROBE if turn["content"] not in text]
    if lost:
        return [Diagnosis("template_refuses", f"the template leaves out the {', '.join(lost)} turn", {"lost": lost})]
    control = control_ids(tokenizer)
    markers = list(dict.fromkeys(_MARKER.findall(text)))
    vocabulary = tokenizer.get_vocab()
    unknown = [marker for marker in markers if marker not in vocabulary]
    if unknown:
        pieces = {marker: len(tokenizer(marker, add_special_tokens=False)["input_ids"]) for marker in unknown}
        parts = ", ".join(f"{marker} becomes {count} ordinary tokens" for marker, count in pieces.items())
        return [Diagnosis("template_unknown_tokens", parts, {"tokens": unknown, "pieces": pieces})]
    turns = [token for token in control if _TURN.search(token)]
    unused = [token for token in turns if token not in text and "system" not in token.lower()]
    if turns and len(unused) == len([token for token in turns if "system" not in token.lower()]) > 0:
        finding = f"the tokenizer has {', '.join(unused)}, the template writes none of them: {_short(text)}"
        evidence = {"unused": unused, "rendered": text, "reference": "the model that it was trained from"}
        return [Diagnosis("template_wrong", finding, evidence)]
    return []


def check_template_against(
    tokenizer: Tokenizer, reference: Tokenizer | None, where: Path | None, manifest: Path | None
) -> list[Diagnosis]:
    """Check a rendered turn against the base's, and the template's file against the digest recorded by the training.

    Args:
        reference: the base's tokenizer, if there is a base.
        where: the base's folder.
        manifest: `training_info.json` beside the model, if there is one.
    """
    own = rendered(tokenizer, PROBE)
    if reference is not None and getattr(reference, "chat_template", None):
        other = rendered(reference, PROBE)
        if own != other:
            finding = f"a turn is rendered as {_short(own)}, the base renders {_short(other)}"
            evidence = {"rendered": own, "expected": other, "reference": str(where)}
            return [Diagnosis("template_wrong", finding, evidence)]
    if manifest is None:
        return []
    noted = read_foreign_object(manifest).get("files")
    if not isinstance(noted, dict):
        return []
    for name in _TEMPLATE_FILES:
        file = manifest.parent / name
        if name in noted and file.is_file() and sha256_file(file) != noted[name]:
            finding = f"{name} is {sha256_file(file)[:12]}, the training noted {noted[name][:12]}"
            evidence = {"file": name, "digest": sha256_file(file), "noted": noted[name], "reference": "the training"}
            return [Diagnosis("template_wrong", finding, evidence)]
    return []


def check_end(tokenizer: Tokenizer, ends: set[int]) -> list[Diagnosis]:
    """Check that generation stops at the token that ends the assistant's turn in the template.

    Args:
        ends: token ids at which generation stops.
    """
    text = rendered(tokenizer, PROBE)
    after = text[text.rindex(PROBE[-1]["content"]) + len(PROBE[-1]["content"]) :]
    control = set(control_ids(tokenizer).values())
    end = next((i for i in tokenizer(after, add_special_tokens=False)["input_ids"] if i in control), None)
    if end is None:
        finding = f"the template writes no control token after an answer ({after!r}): no answer could be seen to end"
        return [Diagnosis("end_of_turn_not_eos", finding, {"end_id": sorted(ends), "eos_token_ids": sorted(ends)})]
    if end in ends:
        return []
    token = tokenizer.convert_ids_to_tokens(end)
    stops = ", ".join(f"{i} ({tokenizer.convert_ids_to_tokens(i)})" for i in sorted(ends)) or "nothing"
    finding = f"an answer ends with {token} ({end}), generation stops at {stops}"
    evidence = {"end_token": token, "end_id": end, "eos_token_ids": sorted(ends)}
    return [Diagnosis("end_of_turn_not_eos", finding, evidence)]


def template_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Control tokens that the template writes around turns, and their ids."""
    text = rendered(tokenizer, PROBE)
    return {token: number for token, number in control_ids(tokenizer).items() if token in text}


def rendered(tokenizer: Tokenizer, messages: Any) -> str:
    """A conversation rendered by the chat template.

    Raises:
        InputError: the template refuses it.
    """
    try:
        return jinja_template(tokenizer).text_of([dict(one) for one in messages])
    except (jinja2.TemplateError, ValueError, TypeError) as error:
        raise InputError(f"the chat template refuses a conversation of user and assistant: {error}") from error


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:79] + "…")
