"""Chat templates in published forms, each with the same form written out in Python, and tokenizers for them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

Turns = Sequence[tuple[str, str]]
Parts = list[tuple[str, bool]]  # text, and whether it is supervised

SPECIAL = (
    *("<pad>", "<s>", "</s>", "<bos>", "<|begin_of_text|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<start_of_turn>", "<end_of_turn>"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
)
PROSE = (
    "def add(a, b):\n    return a + b\n\nprint(add(1, 2))  # 3\nWhat does this print? It prints three.\n"
    "user assistant system model think [INST] [/INST]\nSELECT name FROM people WHERE age > 30;\n"
) * 20


@dataclass(frozen=True)
class Form:
    """A published form: its template, its end of sequence, and what it writes."""

    template: str
    eos: str
    bos: str
    write: Callable[[Turns], Parts]
    system: bool = True


def chatml(turns: Turns) -> Parts:
    parts: Parts = []
    for role, text in turns:
        parts.append((f"<|im_start|>{role}\n", False))
        parts += [(f"{text}<|im_end|>", role == "assistant"), ("\n", False)]
    return parts


def qwen(turns: Turns) -> Parts:
    return chatml(turns if turns[0][0] == "system" else [("system", "You are a helpful assistant."), *turns])


def mistral(turns: Turns) -> Parts:
    parts: Parts = [("<s>", False)]
    for role, text in turns:
        parts += [(f" {text}</s>", True)] if role == "assistant" else [(f"[INST] {text} [/INST]", False)]
    return parts


def mistral_v1(turns: Turns) -> Parts:
    parts: Parts = [("<s>", False)]
    for role, text in turns:
        parts += [(f"{text}</s>", True), (" ", False)] if role == "assistant" else [(f"[INST] {text} [/INST]", False)]
    return parts


def llama3(turns: Turns) -> Parts:
    parts: Parts = [("<|begin_of_text|>", False)]
    for role, text in turns:
        parts.append((f"<|start_header_id|>{role}<|end_header_id|>\n\n", False))
        parts.append((f"{text.strip()}<|eot_id|>", role == "assistant"))
    return parts


def gemma(turns: Turns) -> Parts:
    parts: Parts = [("<bos>", False)]
    for role, text in turns:
        parts.append((f"<start_of_turn>{'model' if role == 'assistant' else role}\n", False))
        parts += [(f"{text.strip()}<end_of_turn>", role == "assistant"), ("\n", False)]
    return parts


def phi3(turns: Turns) -> Parts:
    parts: Parts = []
    for role, text in turns:
        parts += [(f"<|{role}|>\n", False), (f"{text}<|end|>", role == "assistant"), ("\n", False)]
    return [*parts, ("<|endoftext|>", False)]


def zephyr(turns: Turns) -> Parts:
    parts: Parts = []
    for role, text in turns:
        parts += [(f"<|{role}|>\n", False), (f"{text}</s>", role == "assistant"), ("\n", False)]
    return parts


_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>{{ '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}"
)
_MARKED = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] }}END{% endgeneration %}{{ '\n' }}"
    "{% else %}{{ message['content'] }}<|im_end|>{{ '\n' }}{% endif %}{% endfor %}"
)
_MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('turns have to alternate between user and assistant') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ANSWER }}{% endif %}{% endfor %}"
)

FORMS: dict[str, Form] = {
    "chatml": Form(_CHATML, "<|im_end|>", "<s>", chatml),
    "chatml marked": Form(_MARKED.replace("END", "<|im_end|>"), "<|im_end|>", "<s>", chatml),
    "chatml marked without its end": Form(
        _MARKED.replace("END{% endgeneration %}", "{% endgeneration %}<|im_end|>"), "<|endoftext|>", "<s>", chatml
    ),
    "qwen": Form(
        "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>{{ '\n' }}"
        "{% endif %}" + _CHATML,
        "<|im_end|>",
        "<s>",
        qwen,
    ),
    "mistral": Form(
        _MISTRAL.replace("ANSWER", "' ' + message['content'] + eos_token"), "</s>", "<s>", mistral, system=False
    ),
    "mistral v1": Form(
        _MISTRAL.replace("ANSWER", "message['content'] + eos_token + ' '"), "</s>", "<s>", mistral_v1, system=False
    ),
    "llama 3": Form(
        "{% for message in messages %}"
        "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
        " + message['content'] | trim + '<|eot_id|>' %}"
        "{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
        "{% endif %}{{ content }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        "<|eot_id|>",
        "<|begin_of_text|>",
        llama3,
    ),
    "gemma": Form(
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
        "{{ raise_exception('no system turns here') }}{% endif %}"
        "{% for message in messages %}{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
        "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
        "<|endoftext|>",
        "<bos>",
        gemma,
        system=False,
    ),
    "phi 3": Form(
        "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
        "<|endoftext|>",
        "<s>",
        phi3,
    ),
    "zephyr": Form(
        "{% for message in messages %}{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}"
        "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}",
        "</s>",
        "<s>",
        zephyr,
    ),
}


@cache
def trained(kind: str) -> str:
    """A small tokenizer of one of the sorts that base models have, as JSON."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special: list[str] = list(SPECIAL)
    model = tokenizers.Tokenizer(models.BPE(byte_fallback=kind == "sentencepiece", unk_token=None))
    if kind == "sentencepiece":  # words begin with a mark, unknown characters are bytes
        special += [f"<0x{byte:02X}>" for byte in range(256)]
        alphabet = ["\u2581"]
        model.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        model.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    else:
        model.normalizer = normalizers.NFC() if kind == "nfc" else None
        model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    model.train_from_iterator(PROSE.split("\n\n"), trainer)
    return str(model.to_str())


def tokenizer_of(form: Form, kind: str = "bytes", *, pad: str = "<pad>") -> Any:
    """A tokenizer with the form's template; its control tokens are those of all forms."""
    document = json.loads(trained(kind))
    for token in document["added_tokens"]:
        token["special"] = token["content"] in SPECIAL
        token["rstrip"] = kind == "rstrip" and token["content"] == "<|end|>"
    document["added_tokens"] = [token for token in document["added_tokens"] if token["special"]]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(document)),
        bos_token=form.bos,
        eos_token=form.eos,
        pad_token=pad,
        chat_template=form.template,
    )
