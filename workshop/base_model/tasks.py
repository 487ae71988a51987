"""Small tasks with their solution in Python and JavaScript, and calls with what they really return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from workshop.base_model.worlds import Field, World

_SYLLABLES = (
    "ba", "be", "bo", "da", "de", "do", "fa", "fi", "go", "ka", "ke", "ki", "la", "le", "lo", "ma", "me", "mi",
    "na", "ne", "no", "pa", "po", "ra", "re", "ri", "sa", "se", "so", "ta", "te", "ti", "va", "vi", "zo", "zu",
)  # fmt: skip
_RESERVED = {"delete", "rename"}  # words of SQL or JavaScript that syllables can make


@dataclass(frozen=True)
class Task:
    """What is asked, how it is solved, and calls with their results.

    Attributes:
        said: the request in English.
        name: of the function.
        python: its definition.
        javascript: the same function; "" where there is none.
        calls: (arguments as Python values, result).
    """

    said: str
    name: str
    python: str
    javascript: str
    calls: tuple[tuple[tuple[Any, ...], Any], ...]


def word(rng: Random) -> str:
    """A word that nobody has read before."""
    made = "".join(rng.choice(_SYLLABLES) for _ in range(rng.randint(2, 4)))
    return word(rng) if made in _RESERVED else made


def function_name(rng: Random, *hints: str) -> str:
    """A name in snake case: of the hints, or of words without a meaning."""
    if rng.random() < 0.5:
        return "_".join([rng.choice(hints), word(rng)]) if rng.random() < 0.5 else "_".join(hints[:3])
    return "_".join(word(rng) for _ in range(rng.randint(1, 2)))


def camel(name: str) -> str:
    """A name in camel case, as JavaScript writes it."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@dataclass(frozen=True)
class _Step:
    """A test or a change of one item: how it is said, written in both languages, and done."""

    said: str
    python: str
    javascript: str
    done: Callable[[Any], Any]


def _tests(rng: Random, one: str) -> _Step:
    k = rng.randint(2, 9)
    return rng.choice(
        [
            _Step("even", f"{one} % 2 == 0", f"{one} % 2 === 0", lambda x: x % 2 == 0),
            _Step("odd", f"{one} % 2 != 0", f"{one} % 2 !== 0", lambda x: x % 2 != 0),
            _Step("positive", f"{one} > 0", f"{one} > 0", lambda x: x > 0),
            _Step("negative", f"{one} < 0", f"{one} < 0", lambda x: x < 0),
            _Step(f"greater than {k}", f"{one} > {k}", f"{one} > {k}", lambda x: x > k),
            _Step(f"at least {k}", f"{one} >= {k}", f"{one} >= {k}", lambda x: x >= k),
            _Step(f"less than {k}", f"{one} < {k}", f"{one} < {k}", lambda x: x < k),
            _Step(f"at most {k}", f"{one} <= {k}", f"{one} <= {k}", lambda x: x <= k),
            _Step(f"divisible by {k}", f"{one} % {k} == 0", f"{one} % {k} === 0", lambda x: x % k == 0),
            _Step(f"not {k}", f"{one} != {k}", f"{one} !== {k}", lambda x: x != k),
        ]
    )


def _changes(rng: Random, one: str) -> _Step:
    k = rng.randint(2, 9)
    return rng.choice(
        [
            _Step("doubled", f"{one} * 2", f"{one} * 2", lambda x: x * 2),
            _Step(f"times {k}", f"{one} * {k}", f"{one} * {k}", lambda x: x * k),
            _Step(f"plus {k}", f"{one} + {k}", f"{one} + {k}", lambda x: x + k),
            _Step(f"minus {k}", f"{one} - {k}", f"{one} - {k}", lambda x: x - k),
            _Step("squared", f"{one} ** 2", f"{one} ** 2", lambda x: x**2),
            _Step("negated", f"-{one}", f"0 - {one}", lambda x: -x or 0),
            _Step("without their sign", f"abs({one})", f"Math.abs({one})", abs),
        ]
    )


# said of {}, the Python and JavaScript of a list {}, done to a list of numbers
_ENDS: tuple[tuple[str, str, str, Callable[[list[int]], Any]], ...] = (
    ("the sum of {}", "sum({})", "{}.reduce((a, b) => a + b, 0)", sum),
    ("how many there are of {}", "len({})", "{}.length", len),
    ("{} as a list", "{}", "{}", list),
    ("{} in ascending order", "sorted({})", "{}.sort((a, b) => a - b)", sorted),
    (
        "{} in descending order",
        "sorted({}, reverse=True)",
        "{}.sort((a, b) => b - a)",
        lambda x: sorted(x, reverse=True),
    ),
    ("the largest of {}, or 0", "max({}, default=0)", "Math.max(0, ...{})", lambda x: max(x, default=0)),
    ("{} in reverse order", "{}[::-1]", "{}.reverse()", lambda x: x[::-1]),
    ("the first two of {}", "{}[:2]", "{}.slice(0, 2)", lambda x: x[:2]),
)


def numbers(rng: Random) -> Task:
    """Numbers of a list: some of them, changed, then one thing made of them."""
    items, one = rng.choice((("numbers", "number"), ("values", "value"), ("xs", "x"), (word(rng), word(rng)[:4])))
    test, change = _tests(rng, one), _changes(rng, one)
    said, python_end, javascript_end, done = rng.choice(_ENDS)
    largest = "largest" in said
    while largest and "-" in change.python:
        change = _changes(rng, one)
    form = rng.randrange(3)
    tested, changed = form != 1, form != 0
    what = f"the {'numbers' if items not in ('values',) else 'values'}" + (f" that are {test.said}" if tested else "")
    what = what + (f", {change.said}" if changed else "")
    name = function_name(rng, rng.choice(("pick", "count", "take", "get")), items, test.said.split()[0])

    def result(given: list[int]) -> Any:
        kept = [x for x in given if not tested or test.done(x)]
        return done([change.done(x) if changed else x for x in kept])

    value = change.python if changed else one
    clause = f" if {test.python}" if tested else ""
    if rng.random() < 0.5:
        python = f"def {name}({items}):\n    return {python_end.format(f'[{value} for {one} in {items}{clause}]')}"
    else:
        out = rng.choice(("result", "found", "out", word(rng)))
        append = f"{out}.append({value})"
        inner = f"        if {test.python}:\n            {append}" if tested else f"        {append}"
        python = (
            f"def {name}({items}):\n    {out} = []\n    for {one} in {items}:\n{inner}\n"
            f"    return {python_end.format(out)}"
        )
    chain = items + (f".filter(({one}) => {test.javascript})" if tested else "")
    chain += f".map(({one}) => {change.javascript})" if changed else ""
    chain = f"[...{items}]" if chain == items else chain
    end = javascript_end.format(chain)
    if rng.random() < 0.5:
        javascript = f"const {camel(name)} = ({items}) => {end};"
    else:
        javascript = f"function {camel(name)}({items}) {{\n  return {end};\n}}"
    lists = [[rng.randint(-4, 14) for _ in range(rng.randint(2, 6))] for _ in range(3)]
    if largest:
        lists = [[abs(x) for x in given] for given in lists]
        if tested and test.said == "negative":
            return numbers(rng)
    calls = tuple(((given,), result(given)) for given in lists)
    return Task(f"Return {said.format(what)}.", name, python, javascript, calls)


# said, Python and JavaScript of a text {0}, done
_TEXTS: tuple[tuple[str, str, str, Callable[[str], Any]], ...] = (
    ("the text in upper case", "{0}.upper()", "{0}.toUpperCase()", str.upper),
    ("the text backwards", "{0}[::-1]", "{0}.split('').reverse().join('')", lambda t: t[::-1]),
    ("how many words the text has", "len({0}.split())", "{0}.split(' ').length", lambda t: len(t.split())),
    ("the first word of the text", "{0}.split()[0]", "{0}.split(' ')[0]", lambda t: t.split()[0]),
    ("the last word of the text", "{0}.split()[-1]", "{0}.split(' ').at(-1)", lambda t: t.split()[-1]),
    ("the words of the text in alphabetical order", "sorted({0}.split())", "{0}.split(' ').sort()",
     lambda t: sorted(t.split())),
    ("the length of the text", "len({0})", "{0}.length", len),
    ("the longest word of the text", "max({0}.split(), key=len)", "", lambda t: max(t.split(), key=len)),
    ("the length of each word", "[len(w) for w in {0}.split()]", "{0}.split(' ').map((w) => w.length)",
     lambda t: [len(w) for w in t.split()]),
    ("the first letters of the words", "''.join(w[0] for w in {0}.split())",
     "{0}.split(' ').map((w) => w[0]).join('')", lambda t: "".join(w[0] for w in t.split())),
    ("the words joined by dashes", "'-'.join({0}.split())", "{0}.split(' ').join('-')", lambda t: "-".join(t.split())),
    ("the text without its vowels", "''.join(c for c in {0} if c not in 'aeiou')",
     "{0}.replace(/[aeiou]/g, '')", lambda t: "".join(c for c in t if c not in "aeiou")),
    ("how many vowels the text has", "sum(c in 'aeiou' for c in {0})", "", lambda t: sum(c in "aeiou" for c in t)),
    ("whether the text reads the same backwards", "{0} == {0}[::-1]", "", lambda t: t == t[::-1]),
)  # fmt: skip


def texts(rng: Random) -> Task:
    """A text: one thing made of it."""
    parameter = rng.choice(("text", "s", "line", "sentence", word(rng)))
    said, python, javascript, done = rng.choice(_TEXTS)
    name = function_name(rng, *(each for each in said.split() if each not in ("the", "of", "how")), "text")
    code = f"def {name}({parameter}):\n    return {python.format(parameter)}"
    script = f"const {camel(name)} = ({parameter}) => {javascript.format(parameter)};" if javascript else ""
    given = [" ".join(word(rng) for _ in range(rng.randint(1, 3))) for _ in range(3)]
    if "backwards" in said and "whether" in said:
        given[0] = given[0].split()[0] + given[0].split()[0][::-1]
    return Task(f"Return {said}.", name, code, script, tuple(((text,), done(text)) for text in given))


def records(rng: Random, world: World) -> Task:
    """Records as dictionaries: some of them by a field, and what is made of another one."""
    entity = rng.choice((world.parent, world.child))
    numeric = entity.of_kind("real", "int")
    field, told = rng.choice(numeric), entity.fields[0]
    k = rng.randint(10, 60)
    items, one = rng.choice(((entity.plural, entity.name), ("rows", "row"), (word(rng), word(rng)[:4])))
    listed = [[_record(rng, entity.fields[0], numeric, world) for _ in range(rng.randint(2, 4))] for _ in range(2)]
    key = field.name

    def over(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if row[key] > k]

    condition = f'{one}["{key}"] > {k}'
    words = key.replace("_", " ")
    forms: list[tuple[str, str, Callable[[list[dict[str, Any]]], Any], str]] = [
        (f"the {told.name}s of the {entity.plural} whose {words} is over {k}",
         f'[{one}["{told.name}"] for {one} in {items} if {condition}]',
         lambda rows: [row[told.name] for row in over(rows)],
         f"{items}.filter(({one}) => {one}.{key} > {k}).map(({one}) => {one}.{told.name})"),
        (f"how many {entity.plural} have a {words} over {k}",
         f"sum(1 for {one} in {items} if {condition})", lambda rows: len(over(rows)),
         f"{items}.filter(({one}) => {one}.{key} > {k}).length"),
        (f"the total {words} of the {entity.plural}",
         f'sum({one}["{key}"] for {one} in {items})', lambda rows: sum(row[key] for row in rows),
         f"{items}.reduce((total, {one}) => total + {one}.{key}, 0)"),
        (f"the {told.name}s of the {entity.plural} by falling {words}",
         f'[{one}["{told.name}"] for {one} in sorted({items}, key=lambda {one}: {one}["{key}"], reverse=True)]',
         lambda rows: [row[told.name] for row in sorted(rows, key=lambda row: row[key], reverse=True)],
         f"[...{items}].sort((a, b) => b.{key} - a.{key}).map(({one}) => {one}.{told.name})"),
        (f"the {told.name} of the {entity.name} with the smallest {words}",
         f'min({items}, key=lambda {one}: {one}["{key}"])["{told.name}"]',
         lambda rows: min(rows, key=lambda row: row[key])[told.name], ""),
        (f"a dictionary from the {told.name} of each of the {entity.plural} to its {words}",
         f'{{{one}["{told.name}"]: {one}["{key}"] for {one} in {items}}}',
         lambda rows: {row[told.name]: row[key] for row in rows}, ""),
    ]  # fmt: skip
    said, python, done, javascript = rng.choice(forms)
    name = function_name(rng, rng.choice(("list", "find", "total")), entity.plural, key)
    return Task(
        f"Return {said}.",
        name,
        f"def {name}({items}):\n    return {python}",
        f"const {camel(name)} = ({items}) => {javascript};" if javascript else "",
        tuple(((rows,), done(rows)) for rows in listed),
    )


def _record(rng: Random, told: Field, numeric: tuple[Field, ...], world: World) -> dict[str, Any]:
    return {told.name: rng.choice(world.names), **{field.name: rng.randint(1, 99) for field in numeric}}


def branches(rng: Random) -> Task:
    """A number compared with limits, and a word for each side."""
    x, low = rng.choice(("n", "value", "amount", word(rng))), rng.randint(2, 30)
    high = low + rng.randint(5, 40)
    names = rng.sample(("low", "high", "small", "large", "cold", "warm", "bad", "good", "cheap", "dear", word(rng)), 3)
    name = function_name(rng, rng.choice(("rate", "grade", "label", "classify")), "number")
    strict = rng.random() < 0.5
    sign, until = ("<", "below") if strict else ("<=", "up to")

    def result(n: int) -> str:
        return next(
            (w for limit, w in ((low, names[0]), (high, names[1])) if (n < limit or (n == limit and not strict))),
            names[2],
        )

    return Task(
        f'Return "{names[0]}" for numbers {until} {low}, "{names[1]}" {until} {high}, else "{names[2]}".',
        name,
        f'def {name}({x}):\n    if {x} {sign} {low}:\n        return "{names[0]}"\n    if {x} {sign} {high}:\n'
        f'        return "{names[1]}"\n    return "{names[2]}"',
        f"function {camel(name)}({x}) {{\n  if ({x} {sign} {low}) return '{names[0]}';\n"
        f"  if ({x} {sign} {high}) return '{names[1]}';\n  return '{names[2]}';\n}}",
        tuple(((n,), result(n)) for n in rng.sample((low - 1, low, low + 1, high - 1, high, high + 3), 3)),
    )


def loops(rng: Random) -> Task:
    """A loop that adds up, counts or builds, told step by step."""
    items, total, one, k = (
        word(rng),
        rng.choice(("total", "count", word(rng))),
        rng.choice(("x", "item", word(rng)[:4])),
        rng.randint(1, 9),
    )
    begin = rng.randint(0, 5)
    forms: tuple[tuple[str, str, str, Callable[[int, int], int]], ...] = (
        (f"Start with {begin}, add each number and {k}",
         f"{total} += {one} + {k}", f"{total} += {one} + {k};", lambda t, x: t + x + k),
        (f"Start with {begin} and add the numbers over {k}",
         f"if {one} > {k}:\n            {total} += {one}", f"if ({one} > {k}) {total} += {one};",
         lambda t, x: t + x if x > k else t),
        (f"Start with {begin} and count the numbers under {k}",
         f"if {one} < {k}:\n            {total} += 1", f"if ({one} < {k}) {total} += 1;", lambda t, x: t + (x < k)),
        (f"Start with {begin} and keep the larger of it and each number",
         f"if {one} > {total}:\n            {total} = {one}", f"if ({one} > {total}) {total} = {one};", max),
        (f"Start with {begin} and subtract each number",
         f"{total} -= {one}", f"{total} -= {one};", lambda t, x: t - x),
    )  # fmt: skip
    said, python, javascript, step = rng.choice(forms)
    name = function_name(rng, rng.choice(("reduce", "fold", "sum", "run")), items)

    def result(given: list[int]) -> int:
        value = begin
        for each in given:
            value = step(value, each)
        return value

    return Task(
        f"{said}; return what results.",
        name,
        f"def {name}({items}):\n    {total} = {begin}\n    for {one} in {items}:\n        {python}\n    return {total}",
        f"function {camel(name)}({items}) {{\n  let {total} = {begin};\n  for (const {one} of {items}) {{\n"
        f"    {javascript}\n  }}\n  return {total};\n}}",
        tuple(
            ((given,), result(given))
            for given in ([rng.randint(0, 12) for _ in range(rng.randint(2, 5))] for _ in range(3))
        ),
    )


def small_task(rng: Random, world: World) -> Task:
    """A task of any of these kinds."""
    return rng.choice((numbers, numbers, texts, branches, loops, lambda rng: records(rng, world)))(rng)
