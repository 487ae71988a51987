"""Probe cells: call one function on many inputs and print each result, the same for Python and JavaScript.

A value is told by a text: sequences as lists, sets and mappings sorted, numbers with nine digits; long ones by a
digest. In Python the lists of an input may have to be tuples or sets: the first form that gives what was recorded.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from capibara_assets.datasets.agreement.common import Arguments

_PYTHON = """
def __told(value, depth=0):
    if depth > 12:
        raise ValueError
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return __import__("json").dumps(value, ensure_ascii=False)
    if isinstance(value, (int, float)):
        return "%.8e" % (value + 0.0) if value else "0"
    if isinstance(value, dict):
        pairs = sorted("[%s,%s]" % (__told(key, depth + 1), __told(one, depth + 1)) for key, one in value.items())
        return "[" + ",".join(pairs) + "]"
    items = [__told(item, depth + 1) for item, _ in zip(value, range(2000))]
    return "[" + ",".join(sorted(items) if isinstance(value, (set, frozenset)) else items) + "]"
def __short(text):
    if len(text) <= 24:
        return text
    number = 0
    for character in text:
        number = (number * 31 + ord(character)) % 4294967291
    return "#%d" % number
def __tuples(value, outer=True):
    if not isinstance(value, list):
        return value
    items = [__tuples(item) for item in value]
    return tuple(items) if outer else items
def __called(arguments, form):
    import contextlib, copy, io
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return __short(__told(NAME(*(form(copy.deepcopy(each)) for each in arguments))))
    except Exception:
        return None
__recorded, __expected, __changed = __import__("json").loads(DATA)
__expected = [__short(__told(value)) for value in __expected]
__forms = (lambda v: v, lambda v: __tuples(v, False), __tuples, lambda v: set(v) if isinstance(v, list) else v)
def __passed(form):
    return [__called(given, form) == wanted for given, wanted in zip(__recorded, __expected)]
__form = next((form for form in __forms if all(__passed(form))), __forms[0])
print(__import__("json").dumps([__passed(__form), [__called(given, __form) for given in __changed]]))
"""
_JAVASCRIPT = """
(function () {
  const told = (value, depth = 0) => {
    if (depth > 12) throw new Error('too deep');
    if (value === undefined || value === null) return 'null';
    if (typeof value === 'boolean') return String(value);
    if (typeof value === 'string') return JSON.stringify(value);
    if (typeof value === 'bigint') value = Number(value);
    if (typeof value === 'number') {
      if (Number.isNaN(value)) return 'nan';
      return value ? value.toExponential(8).replace(/e([+-])(\\d)$/, 'e$10$2') : '0';
    }
    const all = (items) => '[' + items.join(',') + ']';
    const pairs = (entries) => all(entries.map((pair) => all(pair.map((one) => told(one, depth + 1)))).sort());
    if (value instanceof Map) return pairs([...value]);
    if (value instanceof Set) return all([...value].map((one) => told(one, depth + 1)).sort());
    if (typeof value[Symbol.iterator] === 'function') return all([...value].map((one) => told(one, depth + 1)));
    if (typeof value === 'object') return pairs(Object.entries(value));
    throw new Error('no value');
  };
  const short = (text) => {
    if ([...text].length <= 24) return text;
    let number = 0;
    for (const character of text) number = (number * 31 + character.codePointAt(0)) % 4294967291;
    return '#' + number;
  };
  const called = (given) => {
    if (typeof __turns !== 'undefined') __turns = 0;
    try { return short(told(NAME(...JSON.parse(JSON.stringify(given))))); } catch (error) { return null; }
  };
  const [recorded, expected, changed] = JSON.parse(DATA);
  const shown = console.log;
  console.log = () => {};
  const found = [recorded.map((given, i) => called(given) === short(told(expected[i]))), changed.map(called)];
  console.log = shown;
  console.log(JSON.stringify(found));
})();
"""


@dataclass(frozen=True)
class Told:
    """Output of a probe: whether each recorded input gave the expected result, and the result of each changed input.

    None is an input that raised, or gave what is no plain value.
    """

    passed: tuple[bool, ...]
    given: tuple[str | None, ...]


def probe(
    language: str, name: str, recorded: Sequence[Arguments], expected: Sequence[Any], changed: Sequence[Arguments]
) -> str:
    """Build the cell that calls the function `name` on recorded and changed inputs."""
    data = json.dumps([[list(each) for each in recorded], list(expected), [list(each) for each in changed]])
    text, quoted = (_PYTHON, repr(data)) if language == "python" else (_JAVASCRIPT, json.dumps(data))
    return text.replace("NAME", name).replace("DATA", quoted)


def told(shown: str) -> Told | None:
    """Parse the output of a probe; None if it is incomplete."""
    try:
        passed, given = json.loads(shown)
    except ValueError:
        return None
    return Told(tuple(passed), tuple(given))
