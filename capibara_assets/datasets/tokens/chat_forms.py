"""Parsing of rendered chats: text with the marks of a chat template back to messages.

A form is recognised by the beginning of the text. The recovered messages are rendered again and have to give the same
bytes, so that the assistant's span is certain; else the text is refused with the reason.

| form | one turn |
|---|---|
| mistral, llama-2 | `<s>[INST] <<SYS>>\\n...\\n<</SYS>>\\n\\n... [/INST] ... </s>`, the system text once |
| chatml | `<|im_start|>role\\n...<|im_end|>\\n` |
| llama-3 | `<|start_header_id|>role<|end_header_id|>\\n\\n...<|eot_id|>` |
| gemma | `<start_of_turn>user\\n...<end_of_turn>\\n`, the assistant is called model |
| zephyr | `<|role|>\\n...</s>\\n` |
| phi | `<|role|>\\n...<|end|>\\n` |
| alpaca | `### Instruction:\\n...\\n\\n### Input:\\n...\\n\\n### Response:\\n...` |
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from capibara_assets.executions.formats.strict_json import Fault

Message = dict[str, str]
UNRECOVERABLE = "unrecoverable"
_FORMS = "mistral, chatml, llama-3, gemma, zephyr, phi, alpaca"


@dataclass(frozen=True)
class Recovered:
    """The messages of a rendered chat, and its layout: optional spaces, and marks at the ends."""

    form: str
    messages: list[Message]
    layout: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The rendered chat, with the same bytes as the original."""
        return _WRITERS[self.form](self.messages, self.layout)


def recover(text: str) -> Recovered:
    """Recover the messages of a rendered chat.

    Raises:
        Fault: unrecoverable: no known form, a turn that does not end, marks out of order, a mark inside a turn.
    """
    start = text.lstrip()
    for name, begins in _BEGINNINGS.items():
        if start.startswith(begins):
            recovered = _READERS[name](text)
            if recovered.text() != text:
                _refuse(f"it begins like {name}, but rendering the messages in it does not give the same text")
            return recovered
    if "### Instruction:" in text:
        return _read_alpaca(text)
    raise Fault(
        UNRECOVERABLE, f"no marks tell the answer from the question: known forms are {_FORMS}; else use messages"
    )


def render_mistral(messages: Sequence[Mapping[str, str]]) -> str:
    """Render `<s>[INST] ... [/INST] ... </s>`, turns without space between; a system message stands in <<SYS>> marks.

    Raises:
        Fault: unrecoverable: a mark of the form is part of a message, so that turns could not be told apart.
    """
    held = [mark for mark in _MISTRAL_MARKS for message in messages if mark in message["content"]]
    if held:
        raise Fault(UNRECOVERABLE, f"{held[0]} is part of a message: this form cannot hold it")
    return _write_mistral(messages, _CANONICAL)


# --- mistral ---------------------------------------------------------------------------------------------------------

_MISTRAL_MARKS = ("<s>", "</s>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>")
_CANONICAL = {"begin": "<s>", "opened": " ", "asked": " ", "answer": " ", "end": " ", "between": "", "tail": ""}
_MISTRAL = re.compile(r"\[INST\](?P<user>.*?)\[/INST\](?P<assistant>.*?)</s>", re.DOTALL)
_MISTRAL_MARK = re.compile(r"\[/?INST\]|</?s>")
_SYSTEM = re.compile(r"<<SYS>>\n(?P<system>.*?)\n<</SYS>>\n\n(?P<user>.*)", re.DOTALL)
_GAP = re.compile(r"\s*+(?:<s>)?\s*+(?=\[INST\])")


def _read_mistral(text: str) -> Recovered:
    begin = _begin("<s>", text)
    at, turns, gaps = len(begin), [], []
    while (turn := _MISTRAL.match(text, at)) and not _MISTRAL_MARK.search(turn["user"] + "\0" + turn["assistant"]):
        turns.append((turn["user"], turn["assistant"]))
        at = turn.end()
        gap = _GAP.match(text, at)
        if gap is None:
            break
        gaps.append(gap[0])
        at = gap.end()
    if not turns or text[at:].strip():
        _refuse_mistral(text[at:])
    if len(set(gaps)) > 1:
        _refuse("the marks between its turns differ")
    users, answers = [user for user, _ in turns], [answer for _, answer in turns]
    layout = {
        "begin": begin,
        "opened": _common(users, str.startswith),
        "asked": _common(users, str.endswith),
        "answer": _common(answers, str.startswith),
        "end": _common(answers, str.endswith),
        "between": gaps[0] if gaps else "",
        "tail": text[at:],
    }
    messages = []
    for user, answer in turns:
        messages.append({"role": "user", "content": _inner(user, layout["opened"], layout["asked"])})
        messages.append({"role": "assistant", "content": _inner(answer, layout["answer"], layout["end"])})
    if system := _SYSTEM.fullmatch(messages[0]["content"]):
        messages[0]["content"] = system["user"]
        messages.insert(0, {"role": "system", "content": system["system"]})
    if any(mark in message["content"] for message in messages for mark in _MISTRAL_MARKS[4:]):
        _refuse("<<SYS>> stands elsewhere than at the start of the first question, or does not end")
    return Recovered("mistral", messages, layout)


def _refuse_mistral(rest: str) -> NoReturn:
    marks = _MISTRAL_MARK.findall(rest)
    if marks[:1] == ["[INST]"] and "[/INST]" not in marks:
        _refuse("a question has no [/INST] behind it: nothing says where the answer begins")
    if marks == ["[INST]", "[/INST]"]:
        _refuse("no </s> ends the last answer, which may be cut off: add </s> where it is whole")
    _refuse(f"marks are out of order ({' '.join(marks[:6]) or 'text behind the last </s>'}): expected {_MISTRAL_ORDER}")


_MISTRAL_ORDER = "[INST] question [/INST] answer </s>, and again"


def _common(texts: Sequence[str], has: Callable[[str, str], bool]) -> str:
    """A space if every text has one on this side (and is not only spaces), else nothing."""
    return " " if all(has(text, " ") and text.strip(" ") for text in texts) else ""


def _inner(text: str, left: str, right: str) -> str:
    return text[len(left) : len(text) - len(right)]


def _write_mistral(messages: Sequence[Mapping[str, str]], layout: Mapping[str, str]) -> str:
    spoken, system = list(messages), ""
    if spoken[0]["role"] == "system":
        system = f"<<SYS>>\n{spoken.pop(0)['content']}\n<</SYS>>\n\n"
    turns = []
    for question, answer in zip(spoken[::2], spoken[1::2], strict=True):
        turns.append(
            f"[INST]{layout['opened']}{system}{question['content']}{layout['asked']}[/INST]"
            f"{layout['answer']}{answer['content']}{layout['end']}</s>"
        )
        system = ""
    return layout["begin"] + layout["between"].join(turns) + layout["tail"]


# --- forms with a mark before and behind every turn ------------------------------------------------------------------


@dataclass(frozen=True)
class _Marked:
    """`{opening with ROLE}content{closing}{between}`, after an optional `begin`."""

    begin: str
    opening: str
    closing: str
    between: str
    marks: str  # regular expression of what no content may hold
    assistant: str = "assistant"

    def opened(self, role: str) -> str:
        return self.opening.replace("ROLE", self.assistant if role == "assistant" else role)


_ROLE = r"(?P<role>[a-z]+)"
_MARKED = {
    "chatml": _Marked("<s>", "<|im_start|>ROLE\n", "<|im_end|>", "\n", r"<\|im_(?:start|end)\|>"),
    "llama-3": _Marked(
        "<|begin_of_text|>",
        "<|start_header_id|>ROLE<|end_header_id|>\n\n",
        "<|eot_id|>",
        "",
        r"<\|(?:start_header_id|end_header_id|eot_id|begin_of_text)\|>",
    ),
    "gemma": _Marked("<bos>", "<start_of_turn>ROLE\n", "<end_of_turn>", "\n", r"<(?:start|end)_of_turn>", "model"),
    "zephyr": _Marked("<s>", "<|ROLE|>\n", "</s>", "\n", r"<\|(?:system|user|assistant)\|>|</s>"),
    "phi": _Marked("<s>", "<|ROLE|>\n", "<|end|>", "\n", r"<\|(?:system|user|assistant|end)\|>"),
}


def _read_marked(name: str, text: str) -> Recovered:
    form = _MARKED[name]
    opening = re.escape(form.opening).replace("ROLE", _ROLE)
    turn = re.compile(rf"{opening}(?P<content>.*?){re.escape(form.closing)}", re.DOTALL)
    begin = _begin(form.begin, text)
    at, messages = len(begin), []
    while (match := turn.match(text, at)) and not re.search(form.marks, match["content"]):
        role = "assistant" if match["role"] == form.assistant else match["role"]
        messages.append({"role": role, "content": match["content"]})
        at = match.end()
        if text[at:].strip():
            if not text.startswith(form.between, at):
                _refuse(f"the {name} turns do not follow one another as they should, at character {at}")
            at += len(form.between)
    if not messages or text[at:].strip():
        _refuse(f"a {name} turn does not end, or has a mark in it, at character {at}: each ends with {form.closing}")
    return Recovered(name, messages, {"begin": begin, "tail": text[at:]})


def _write_marked(name: str, messages: Sequence[Mapping[str, str]], layout: Mapping[str, str]) -> str:
    form = _MARKED[name]
    turns = [f"{form.opened(message['role'])}{message['content']}{form.closing}" for message in messages]
    return layout["begin"] + form.between.join(turns) + layout["tail"]


def _read_user_bars(text: str) -> Recovered:
    """Zephyr or Phi, which begin alike: the end of the last turn decides."""
    end = text.rstrip()
    ended = [name for name in ("zephyr", "phi") if end.endswith(_MARKED[name].closing)]
    if not ended:
        _refuse("its last turn does not end: </s> (Zephyr) or <|end|> (Phi) ends one")
    return _read_marked(ended[0], text)


# --- alpaca ----------------------------------------------------------------------------------------------------------

_HEADINGS = ("### Instruction:", "### Input:", "### Response:")
_ALPACA = re.compile(
    r"(?P<begin>(?:Below is an instruction[^#]*)?)### Instruction:\n(?P<instruction>.*?)"
    r"(?:\n\n### Input:\n(?P<input>.*?))?\n\n### Response:(?P<gap>\n| )(?P<output>.*?)"
    r"(?P<tail>(?:</s>|<\|end_?of_?text\|>)?\s*)",
    re.DOTALL,
)


def _read_alpaca(text: str) -> Recovered:
    twice = [heading for heading in _HEADINGS if text.count(heading) > 1]
    if twice:
        _refuse(f"{twice[0]} occurs {text.count(twice[0])} times: nothing says which one is a heading")
    match = _ALPACA.fullmatch(text)
    if match is None or _HEADINGS[1] in match["instruction"] + match["output"]:
        _refuse("its headings do not stand as Alpaca has them: each once, a blank line between the parts")
    layout = {"begin": match["begin"], "gap": match["gap"], "tail": match["tail"]}
    question = match["instruction"]
    if match["input"] is not None:
        layout["input"] = match["input"]
        question = f"{question}\n\n{match['input']}"
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": match["output"]}]
    return Recovered("alpaca", messages, layout)


def _write_alpaca(messages: Sequence[Mapping[str, str]], layout: Mapping[str, str]) -> str:
    question, given = messages[0]["content"], ""
    if "input" in layout:
        question = question.removesuffix(f"\n\n{layout['input']}")
        given = f"\n\n### Input:\n{layout['input']}"
    answer = f"\n\n### Response:{layout['gap']}{messages[1]['content']}"
    return f"{layout['begin']}### Instruction:\n{question}{given}{answer}{layout['tail']}"


# --- all of them -----------------------------------------------------------------------------------------------------


def _begin(mark: str, text: str) -> str:
    """The mark that a whole chat may begin with, and the spaces around it."""
    match = re.match(rf"\s*(?:{re.escape(mark)})?\s*", text)
    return match[0] if match else ""


def _refuse(detail: str) -> NoReturn:
    raise Fault(UNRECOVERABLE, detail)


_BEGINNINGS = {
    "mistral": ("<s>[INST]", "<s> [INST]", "[INST]"),
    "chatml": ("<|im_start|>", "<s><|im_start|>"),
    "llama-3": ("<|begin_of_text|>", "<|start_header_id|>"),
    "gemma": ("<bos>", "<start_of_turn>"),
    "bars": ("<|system|>", "<|user|>", "<s><|system|>", "<s><|user|>"),
}
_READERS: dict[str, Callable[[str], Recovered]] = {
    "mistral": _read_mistral,
    **{name: partial(_read_marked, name) for name in ("chatml", "llama-3", "gemma")},
    "bars": _read_user_bars,
}
_WRITERS: dict[str, Callable[[Sequence[Message], Mapping[str, str]], str]] = {
    "mistral": _write_mistral,
    "alpaca": _write_alpaca,
    **{name: partial(_write_marked, name) for name in _MARKED},
}
