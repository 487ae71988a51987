"""The first step where the runs of failing and fixed code differ, with both values."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.code.steps import Step, steps
from capibara_assets.datasets.explanations.behaviour import capital, listed
from capibara_assets.datasets.explanations.substitution import Substitution, eats_its_own, is_readable

_LONGEST, _MOST_NAMES = 100, 4
_WRITTEN = re.compile(r"'[^']*'|\"[^\"]*\"|\b(?:None|True|False|null|true|false)\b")
_STARTS = re.compile(
    r"(?:let |var |const )?[A-Za-z_$][\w$]*\s*=\s*-?(?:\d[\d.]*|True|False|true|false|None|null|'[^']*'|\"[^\"]*\");?"
)
_WITHOUT_OUTCOME = ("jumped", "caught", "raising", "called", "ended")


class Divergence(NamedTuple):
    """The step in both codes, with its two results in sentences."""

    before: str
    after: str
    sentences: list[str]


class _Seen(NamedTuple):
    """One event with the step that it is of, and what of it has to be alike in both runs."""

    event: Sequence[Any]
    step: Step | None
    alike: str

    @property
    def operands(self) -> Mapping[str, str]:
        return self.event[2] if self.event[0] in ("ran", "tested", "looped", "returned") else {}


def first_divergence(pair: Row, before: Mapping[str, Any], after: Mapping[str, Any]) -> Divergence | None:
    """The first differing step of two runs of one call; None if it is not the changed step, or unknown.

    Args:
        pair: a row of the repair pairs.
        before, after: the call in the failing and in the mended code.
    """
    codes = [pair[f"{side}_code"] for side in ("failing", "fixed")]
    known = [steps(code, pair["language"]) for code in codes]
    runs = [_seen(call, places) for call, places in zip((before, after), known, strict=True)]
    same = 0
    while same < min(map(len, runs)) and runs[0][same].alike == runs[1][same].alike:
        same += 1
    if same == len(runs[1]) or runs[1][same].step is None:
        return None
    other, new = runs[1][same], runs[1][same].step
    assert new is not None
    ending = _raising(before, known[0]) if before["raised"] else None
    right = _outcome(other, new, codes[1])
    if right is None or (before["raised"] and ending is None):
        return None
    if same == len(runs[0]):  # the step that raised is none of the events
        if ending is None or _sort(ending[1]) != _sort(new) or not _only_change(ending[1], new, known):
            return None
        said = [capital(f"{_where(runs[0], new)}the run ends where {ending[0]}.")]
        return Divergence(ending[1].text, new.text, [*said, f"{_mended(ending[1], new)}, which {right}."])
    seen, old = runs[0][same], runs[0][same].step
    if old is None or not _only_change(old, new, known):
        return None
    where = _where(runs[0][:same], old)
    if seen.event[0] == "ran" and other.event[0] == "returned" and old.sort == "do":
        return _missing_return(old, other, new, where, runs[0][same + 1 :])
    wrong = _outcome(seen, old, codes[0])
    if seen.event[0] != other.event[0] or _sort(old) != _sort(new) or wrong is None or wrong == right:
        return None
    tested = seen.event[0] == "tested"
    if tested:
        paths = [_next(run[same + 1 :]) for run in runs]
        if None in paths or paths[0] == paths[1]:
            return None
        wrong, right = f"{wrong}, so {paths[0]} follows", f"{right}, and {paths[1]} follows"
    following = [] if tested else _consequence([run[same + 1 :] for run in runs], codes[0])
    if not following and all(_STARTS.fullmatch(step.text) for step in (old, new)):
        return None  # the value that a name starts with says nothing of what it does
    said = [capital(f"{where}`{_headed(old)}` {wrong}."), *following]
    # a branch is told with its first step
    said += [f"The run ends where {ending[0]}."] if ending else _at_the_end(runs[0][same + 1 + tested :], codes[0])
    return Divergence(old.text, new.text, [*said, f"{_mended(old, new)}, which {right}."])


def _consequence(rest: Sequence[Sequence[_Seen]], code: str) -> list[str]:
    """The first test that comes out otherwise while both runs still go the same way."""
    for seen, other in zip(*rest, strict=False):
        if seen.step is None or other.step is None or _bare(seen.step.text) != _bare(other.step.text):
            return []
        if seen.event[0] == "tested" and seen.event[3] != other.event[3]:
            given = _outcome(seen, seen.step, code)
            right = "true" if other.event[3] else "false"
            return [] if given is None else [f"So `{_headed(seen.step)}` {given}, though it ought to be {right}."]
    return []


def _at_the_end(run: Sequence[_Seen], code: str) -> list[str]:
    """What the rest of a run returns at last."""
    if not run or run[-1].event[0] != "returned" or run[-1].step is None:
        return []
    given = _outcome(run[-1], run[-1].step, code)
    return [] if given is None else [f"At the end `{run[-1].step.text}` {given}."]


def _only_change(old: Step, new: Step, known: Sequence[Mapping[str, Step]]) -> bool:
    """Whether two steps are what the codes differ by, and the first is the only one of its kind."""
    counts = [Counter((_sort(step), _bare(step.text)) for step in places.values()) for places in known]
    gone, come = counts[0] - counts[1], counts[1] - counts[0]
    first, second = ((_sort(step), _bare(step.text)) for step in (old, new))
    return gone[first] == 1 == counts[0][first] and come[second] > 0


def raised_at(call: Mapping[str, Any]) -> str:
    """The exception that ends a call."""
    name, message = call["raised"]
    return f"raises `{name}`" + (f" (`{message}`)" if message else "")


def outcome_at(pair: Row, call: Mapping[str, Any], line: str) -> str | None:
    """First result of a line that only the fixed code has; None if its value is unknown."""
    known = steps(pair["fixed_code"], pair["language"])
    for seen in _seen(call, known):
        if (
            seen.step is not None
            and seen.step.sort != "choice"
            and seen.operands
            and _bare(seen.step.text) in _bare(line)
        ):
            return _outcome(seen, seen.step, pair["fixed_code"])
    return None


def _seen(call: Mapping[str, Any], known: Mapping[str, Step]) -> list[_Seen]:
    made = []
    for event in call["events"]:
        step = None if event[0] in ("called", "ended") else known.get(event[1])
        start = 1 if step is None else 2 if event[0] in ("turned", *_WITHOUT_OUTCOME) else 3
        details = [sorted(each.items()) if isinstance(each, dict) else each for each in event[start:]]
        made.append(_Seen(event, step, repr((event[0], "" if step is None else _sort(step), details))))
    return made


def _sort(step: Step) -> str:
    return "assign" if step.sort == "augment" else step.sort


def _bare(text: str) -> str:
    """A step without what its writer may choose: spaces, brackets and the quotes of strings."""
    return re.sub(r"[\s()]", "", text).replace('"', "'").rstrip(";")


def _headed(step: Step) -> str:
    return f"{step.sort} {step.text}" if step.sort in ("for", "if", "while") else step.text


def _mended(old: Step, new: Step) -> str:
    what = {"if": "The condition", "while": "The condition", "for": "The loop"}.get(old.sort, "The line")
    return f"{what} has to be `{_headed(new)}`"


def _where(run: Sequence[_Seen], step: Step) -> str:
    """In which turn of the loops around it a step is; "" outside of loops."""
    values: dict[str, str] = {}
    inner: list[int] = []
    for number, seen in enumerate(run):
        if seen.event[0] == "called":
            inner.append(number)
        elif seen.event[0] == "ended":
            inner.pop()
    call = ""
    if inner:
        _, function, arguments = run[inner[-1]].event
        given = ", ".join(str(value) for _, value in arguments)
        call, run = f"in the inner call `{function}({given})`, ", run[inner[-1] :]
    for seen in reversed(run):
        around = seen.event[0] == "turned" and seen.step is not None and seen.step.holds(_place(step))
        if around and seen.event[1] not in values:
            targets = [(name, value) for name, value in seen.event[2].items() if value is not None]
            values[seen.event[1]] = listed([f"`{n}` is `{v}`" for n, v in targets if is_readable(v)] or [""])
    told = [each for each in reversed(values.values()) if each]
    return call + (f"in the turn of the loop where {' and '.join(told)}, " if told else "")


def _place(step: Step) -> str:
    (first, begin), (last, end) = step.span
    return f"{first}:{begin}:{last}:{end}"


def _next(run: Sequence[_Seen]) -> str | None:
    """The next step of a run, in words."""
    if not run or run[0].step is None:
        return None
    if run[0].event[0] == "turned":
        return "the next turn"
    if run[0].event[0] == "tested" and run[0].step.sort in ("for", "while"):
        return f"the loop's test `{run[0].step.text}`"
    return f"`{_headed(run[0].step)}`"


def _outcome(seen: _Seen, step: Step, code: str) -> str | None:
    """What a step comes out as, with the values of its parts."""
    kind, operands, result = seen.event[0], seen.operands, seen.event[3] if len(seen.event) > 3 else None
    if step.value is None or any(not is_readable(value) for value in operands.values()) or eats_its_own(step.value):
        return None
    if any(part.sort == "choice" for part in (step.value, *step.value.inside())):
        return None
    put = Substitution(code)
    whole = kind == "tested" or step.value.sort in ("name", "constant")
    text = put.value(step.value, operands) if whole else put.written(step.value, operands)
    text = text if len(text) <= _LONGEST else step.value.text
    if kind in ("returned", "ran") and not whole and _bare(text) == _bare(step.value.text) and _named(text):
        return None  # none of its parts has a value that could be told: what it makes would be a bare claim
    match kind:
        case "tested":
            asked = "" if text in ("True", "False", "true", "false") else f"asks whether `{text}`, which "
            return f"{'' if _bare(text) == _bare(step.text) else asked}is {'true' if result else 'false'}"
        case "returned" | "looped" if not isinstance(result, str) or not is_readable(result):
            return None
        case "returned":
            return f"gives {_equal(text, str(result))}"
        case "looped":
            return f"goes over `{result}`"
        case "ran" if isinstance(result, dict):
            names = [name for name in step.targets if result.get(name) is not None] or list(result)
            value = result[names[0]] if len(names) == 1 else None
            if value is None or not is_readable(value):
                return None
            known = step.sort == "assign" and len(step.targets) == 1  # of several, each has a part of the value
            return f"makes `{names[0]}` {_equal(text, value) if known else f'`{value}`'}"
    return None


def _named(text: str) -> bool:
    """Whether an expression reads anything: a list that is written down is its own value."""
    return re.search(r"[A-Za-z_]", _WRITTEN.sub("", text)) is not None


def _equal(text: str, value: str) -> str:
    return f"`{value}`" if _bare(text) == _bare(value) else f"`{text}` = `{value}`"


def _raising(call: Mapping[str, Any], known: Mapping[str, Step]) -> tuple[str, Step] | None:
    """Which step raised, with the values of the names that it read, in words; and the step."""
    operands = call.get("operands", {})
    if not operands or (call["events"] and call["events"][-1][0] == "ended"):
        return None
    raising = [step for step in known.values() if step.value is not None and all(step.holds(at) for at in operands)]
    raising = [step for step in raising if step.sort != "choice"]
    if not raising:
        return None
    step = min(raising, key=lambda each: (each.span[1][0] - each.span[0][0], each.text))
    assert step.value is not None
    parts = [part for part in (*step.value.inside(), step.value) if part.sort == "name" and part.place in operands]
    names = {part.text: operands[part.place] for part in parts}
    if not names or len(names) > _MOST_NAMES or not all(map(is_readable, names.values())):
        return None
    return f"`{_headed(step)}` is evaluated with {listed([f'`{n}` = `{v}`' for n, v in names.items()])}", step


def _missing_return(old: Step, other: _Seen, new: Step, where: str, following: Sequence[_Seen]) -> Divergence | None:
    """The value of an expression is thrown away where the mended code returns it, and the run goes on."""
    value = other.event[3]
    after = _next(following)
    if value is None or not is_readable(value) or old.value is None or new.value is None or after is None:
        return None
    if _bare(old.text) != _bare(new.value.text):
        return None
    at = "" if _bare(old.text) == _bare(value) else f" to `{value}`"
    said = (
        f"{where}the line `{old.text}` is reached, but it only evaluates its expression{at} and throws the value away. "
        f"Without `return` the function does not end there: {after} follows"
    )
    last = following[-1]
    if last.event[0] == "returned" and last.step is not None and isinstance(last.event[3], str):
        told = f"`{last.step.text}`" if len(following) > 1 else "it"
        said += f", and {'at last ' if told != 'it' else ''}{told} gives `{last.event[3]}`"
    else:
        said += ", and the function runs to its end, where it returns `None`"
    return Divergence(old.text, new.text, [capital(f"{said}."), f"The line has to be `{new.text}`."])
