"""Strict JSON parser for logs: exact integers, NaN allowed, duplicate keys and absurd nesting refused with a reason."""

import json
import re
from typing import Any

MAX_DEPTH = (
    200  # nesting of a record; deeper ones are no executions and would exhaust the stack of the code that walks them
)
_MAX_DIGITS = 4000
SURROGATE = re.compile("[\ud800-\udfff]")
_TOKEN = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{},]', re.DOTALL
)  # what structures JSON, and strings, which may hold it
_LONGEST_LITERAL = 24  # characters of a number or a word that the end of a file cuts
_SPACE = re.compile(r"[ \t\r\n]*")


class Fault(Exception):
    """Why a line is no execution: reason class, detail, and the `value` in a document that it is about."""

    def __init__(self, reason: str, detail: str, value: Any = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail, self.value = reason, detail, value


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object in `data`: integers exact at any size, NaN and infinities accepted, duplicate keys refused.

    Raises:
        Fault: invalid_utf8, invalid_json, invalid_record (nested too deep, absurd numbers), duplicate_key:K or
            not_an_object.
    """
    value = parse_value(data)
    if not isinstance(value, dict):
        raise Fault("not_an_object", f"expected a JSON object, found {json_type(value)}")
    return value


def parse_value(data: bytes) -> Any:
    """Any JSON value, under the rules of `parse_object`."""
    value = parse_text(_decoded(data), "the line", "invalid_json")
    if data.count(b"{") + data.count(b"[") > MAX_DEPTH and _depth_exceeds(value, MAX_DEPTH):
        raise Fault("invalid_record", f"nested deeper than {MAX_DEPTH}")
    return value


def parse_values(data: bytes) -> list[Any]:
    """The JSON values that follow one another in `data`, as pretty-printed objects in one file do."""
    text = _decoded(data)
    values: list[Any] = []
    at = _after_space(text, 0)
    while at < len(text):
        value, at = _one(text, at, "the file", "invalid_json")
        if _depth_exceeds(value, MAX_DEPTH):
            raise Fault("invalid_record", f"nested deeper than {MAX_DEPTH}")
        values.append(value)
        at = _after_space(text, at)
    return values


def written_values(data: bytes) -> list[bytes]:
    """The values that follow one another in `data`, or the items of the one list in it, each as it is written.

    Only brackets, commas and quotes are looked at, so that one which is no JSON costs none of the others. Empty where a
    bracket is not closed, or there is anything beside objects and lists.
    """
    text = data.decode("utf-8-sig", "surrogateescape")
    depth, at, commas = 0, 0, list[int]()
    values: list[tuple[int, int]] = []
    for token in _TOKEN.finditer(text):
        if depth == 0 and (token[0] not in ("{", "[") or _after_space(text, at) != token.start()):
            return []
        if token[0] in ("{", "["):
            values += [(token.start(), len(text))] if depth == 0 else []
            depth += 1
        elif token[0] in ("}", "]"):
            depth, at = depth - 1, token.end()
            values[-1] = (values[-1][0], at)
        elif token[0] == "," and depth == 1:
            commas.append(token.start())
    if depth or _after_space(text, at) != len(text):
        return []
    if len(values) == 1 and text[values[0][0]] == "[" and commas:
        begin, end = values[0]
        values = list(zip([begin + 1, *(comma + 1 for comma in commas)], [*commas, end - 1], strict=True))
    return [text[begin:end].strip(" \t\r\n").encode("utf-8", "surrogateescape") for begin, end in values]


def closed_json(data: bytes) -> bytes | None:
    """A JSON object or list whose end is missing, closed behind its last whole element.

    None where the data begins with a whole value, is damaged at another place, or is no JSON.
    """
    text = data.decode("utf-8-sig", "replace")
    begin = _after_space(text, 0)
    if text[begin : begin + 1] not in ("{", "["):
        return None
    try:
        json.JSONDecoder().raw_decode(text, begin)
        return None
    except RecursionError:
        return None
    except json.JSONDecodeError as error:
        if error.pos < len(text) - _LONGEST_LITERAL and not error.msg.startswith("Unterminated"):
            return None
    end = begin  # behind the last element that is whole
    for token in _TOKEN.finditer(text, begin):
        if token[0][0] != '"':
            end = token.start() if token[0] == "," else token.end()
    closing = list[str]()
    for token in _TOKEN.finditer(text, begin, end):
        if token[0] in "{[":
            closing.append("}" if token[0] == "{" else "]")
        elif token[0] in "}]" and closing:
            closing.pop()
    return (text[begin:end] + "".join(reversed(closing))).encode("utf-8", "replace")


def parse_text(text: str, where: str, reason: str) -> Any:
    """The JSON value in `text`; `where` and `reason` name it in the fault."""
    at = _after_space(text, 0)
    value, end = _one(text, at, where, reason)
    if _after_space(text, end) != len(text):
        raise Fault(reason, f"{where} is no JSON: Extra data at character {end}")
    return value


def parse_at(text: str, at: int, where: str) -> tuple[Any, int]:
    """The JSON value that begins at a character of `text` (spaces before it are skipped), and the place behind it.

    Raises:
        Fault: as `parse_value`.
    """
    value, end = _one(text, _after_space(text, at), where, "invalid_json")
    if _depth_exceeds(value, MAX_DEPTH):
        raise Fault("invalid_record", f"{where} is nested deeper than {MAX_DEPTH}")
    return value, _after_space(text, end)


def json_type(value: Any) -> str:
    """The name of a value's JSON type in an error message, such as "a list"."""
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Fault("invalid_utf8", f"byte {error.start} of the line is not UTF-8") from None


def _one(text: str, at: int, where: str, reason: str) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        raise Fault("invalid_record", f"{where} is nested deeper than {MAX_DEPTH}") from None
    except json.JSONDecodeError as error:
        said = error.msg.removesuffix(" at").rstrip(" :")  # some end with where: "Unterminated string starting at"
        raise Fault(reason, f"{where} is no JSON: {said} at character {error.pos}") from None


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Fault(f"duplicate_key:{SURROGATE.sub('?', twice)}", f"the key {twice!r} occurs twice in one object")
    return unique


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise Fault("invalid_record", f"an integer of {len(digits)} digits")
    return int(digits)


def _depth_exceeds(value: Any, limit: int) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


# made once: json.loads with hooks builds a decoder per call, which costs as much as a short line
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_integer)
