"""Rendered chats become messages and the same bytes again, or are refused with the reason."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from capibara_assets.datasets.tokens.chat_forms import Recovered, recover, render_mistral
from capibara_assets.executions.formats.strict_json import Fault


def chat(*texts: str, system: str | None = None) -> list[dict[str, str]]:
    turns = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    return [{"role": "system", "content": system}, *turns] if system is not None else turns


KNOWN = [
    ("mistral", "<s>[INST] 1+1? [/INST] 2 </s>", chat("1+1?", "2")),
    ("mistral", "<s>[INST] a [/INST] b </s>[INST] c [/INST] d </s>", chat("a", "b", "c", "d")),
    ("mistral", "[INST] a[/INST] b</s>", chat("a", "b")),
    ("mistral", "<s> [INST] a [/INST] b</s> [INST] c [/INST] d</s> ", chat("a", "b", "c", "d")),
    (
        "mistral",
        "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\na [/INST] b </s><s>[INST] c [/INST] d </s>",
        chat("a", "b", "c", "d", system="Be brief."),
    ),
    ("mistral", "<s>[INST]  two spaces [/INST] b\n </s>", chat(" two spaces", "b\n")),
    (
        "chatml",
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n",
        chat("a", "b", system="s"),
    ),
    (
        "llama-3",
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nb<|eot_id|>",
        chat("a", "b"),
    ),
    (
        "gemma",
        "<bos><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\nb<end_of_turn>\n",
        chat("a", "b"),
    ),
    ("zephyr", "<|system|>\ns</s>\n<|user|>\na</s>\n<|assistant|>\nb</s>\n", chat("a", "b", system="s")),
    ("phi", "<|user|>\na</s> is HTML<|end|>\n<|assistant|>\nb<|end|>\n", chat("a</s> is HTML", "b")),
    ("alpaca", "### Instruction:\nAdd.\n\n### Response:\n2", chat("Add.", "2")),
    (
        "alpaca",
        "Below is an instruction that describes a task.\n\n### Instruction:\nAdd.\n\n### Input:\n1 1\n\n"
        "### Response:\n2</s>",
        chat("Add.\n\n1 1", "2"),
    ),
]


@pytest.mark.parametrize(("form", "text", "messages"), KNOWN)
def test_known_forms(form: str, text: str, messages: list[dict[str, str]]):
    found = recover(text)
    assert (found.form, found.messages) == (form, messages)
    assert found.text() == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("What is 1+1? 2", "no marks"),
        ("<s>[INST] a b", r"no \[/INST\] behind it"),
        ("<s>[INST] a [/INST] b", "no </s> ends the last answer"),
        ("<s>[INST] a [/INST] b </s> c </s>", "out of order"),
        ("<s>[INST] a [/INST] b [INST] c [/INST] d </s>", "out of order"),
        ("<s>[INST] a [/INST] b </s>[INST] c [/INST] d", "no </s> ends the last answer"),
        ("<s>[INST] a [/INST] b </s>[INST] c [/INST] d </s> [INST] e [/INST] f </s>", "marks between its turns differ"),
        ("<s>[INST] a [/INST] <<SYS>> </s>", "<<SYS>> stands elsewhere"),
        ("<s>[INST] <<SYS>> be [/INST] b </s>", "<<SYS>> stands elsewhere"),
        ("<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb", "does not end"),
        ("<|im_start|>user\na<|im_start|>b<|im_end|>\n", "has a mark in it"),
        ("<|im_start|>user\na<|im_end|> <|im_start|>assistant\nb<|im_end|>", "do not follow"),
        ("<|user|>\na\n<|assistant|>\nb", "last turn does not end"),
        ("### Instruction:\na\n\n### Response:\nb\n\n### Response:\nc", "occurs 2 times"),
        ("### Instruction:\na\n### Input:\nb\n\n### Response:\nc", "headings do not stand"),
        ("<|user|>\na\n</s><|assistant|>\nb<|end|>", "does not end, or has a mark"),
        ("Some words.\n\n### Instruction:\na\n\n### Response:\nb", "headings do not stand"),
    ],
)
def test_refused(text: str, reason: str):
    with pytest.raises(Fault, match=reason) as caught:
        recover(text)
    assert caught.value.reason == "unrecoverable"


# What breaks naive readers: marks and parts of them, spaces and line ends at the edges
MARKS = ("<s>", "</s>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>")
PIECES = st.sampled_from([*MARKS, " ", "\n", "\n<</SYS>>\n\n", "[", "]", "<", "/s>"])
TEXT = st.lists(PIECES | st.text(max_size=6), min_size=1, max_size=6).map("".join).filter(str.strip)
CHATS = st.builds(
    lambda turns, system: chat(*(text for turn in turns for text in turn), system=system),
    st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3),
    st.none() | TEXT,
)


@given(CHATS)
@example(chat("a", "b", system="s\n<</SYS>>"))
@example(chat(" ", "[INST]"))
def test_mistral_gives_back_the_messages_or_refuses_them(messages: list[dict[str, str]]):
    if any(mark in message["content"] for mark in MARKS for message in messages):
        with pytest.raises(Fault, match="is part of a message"):
            render_mistral(messages)
        return
    text = render_mistral(messages)
    found = recover(text)
    assert found.messages == messages and found.text() == text


@given(st.lists(PIECES | st.text(max_size=4), max_size=12).map("".join))
@example("<s>[INST]  [/INST]  </s>")
def test_whatever_is_recovered_is_the_same_bytes_again(text: str):
    for candidate in (text, f"<s>[INST]{text}", f"<s>[INST] a [/INST]{text}</s>", f"[INST]{text}[/INST]{text}</s>"):
        try:
            found = recover(candidate)
        except Fault:
            continue
        assert found.text() == candidate


@pytest.mark.parametrize(
    ("form", "begin", "tail"),
    [
        ("chatml", "", "\n"),
        ("llama-3", "<|begin_of_text|>", ""),
        ("gemma", "<bos>", "\n"),
        ("zephyr", "", "\n"),
        ("phi", "", "\n"),
    ],
)
@given(messages=CHATS)
def test_marked_forms_give_back_the_messages(form: str, begin: str, tail: str, messages: list[dict[str, str]]):
    if form == "zephyr" and any("</s>" in message["content"] for message in messages):
        return
    text = Recovered(form, messages, {"begin": begin, "tail": tail}).text()
    found = recover(text)
    assert found.messages == messages and found.text() == text
