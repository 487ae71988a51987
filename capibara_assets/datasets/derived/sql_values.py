"""Plausible values for columns of small databases, from column names and the constants that a query compares.

Everything is drawn from a seeded generator: the same column, uses and seed give the same values.
"""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache
from random import Random
from typing import Literal, TypeVar

from sqlglot import exp

Sort = Literal["number", "text", "date"]
FoundT = TypeVar("FoundT")

_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)

_PEOPLE = ("Anna", "Boris", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas", "Kira", "Leon",
           "Marta", "Nils", "Olga", "Pavel", "Quinn", "Rosa", "Sven", "Tara", "Ugo", "Vera", "Willem", "Xenia", "Yara",
           "Zeno")  # fmt: skip
_THINGS = ("Aurora", "Beacon", "Comet", "Delta", "Evergreen", "Falcon", "Garnet", "Horizon", "Iris", "Juniper",
           "Kestrel", "Lotus", "Meridian", "Nova", "Orchid", "Pioneer", "Quartz", "Raven", "Summit", "Tempest", "Umbra",
           "Vista", "Willow", "Xenon", "Yonder", "Zephyr")  # fmt: skip
_PLACES = ("Athens", "Bergen", "Cadiz", "Dover", "Essen", "Faro", "Ghent", "Haifa", "Izmir", "Jena", "Kyoto", "Lyon",
           "Malmo", "Nice", "Oslo", "Porto", "Quito", "Riga", "Siena", "Turin", "Utrecht", "Vienna", "Warsaw", "Xian",
           "York", "Zagreb")  # fmt: skip
#: Last words of a column's name -> values.
_TEXTS = {
    "city town village place location region district county area base quay port address site venue": _PLACES,
    "country nation nationality flag origin": ("Brazil", "Canada", "Denmark", "France", "Greece", "Japan", "Kenya"),
    "status state stage": ("open", "closed", "waiting", "cancelled", "active"),
    "result outcome": ("passed", "failed", "open", "void"),
    "genre": ("novel", "drama", "poetry", "travel", "crime"),
    "color colour": ("red", "green", "blue", "black", "white"),
    "gender sex": ("female", "male"),
    "sport": ("rowing", "tennis", "judo", "fencing", "archery"),
    "subject course topic": ("history", "physics", "music", "biology", "art"),
    "department division team unit section": ("sales", "finance", "support", "research", "design"),
    "language": ("English", "French", "Greek", "Polish", "Turkish"),
    "currency": ("EUR", "USD", "GBP", "JPY", "CHF"),
    "fuel": ("petrol", "diesel", "electric", "hybrid", "gas"),
    "species animal breed": ("otter", "heron", "lynx", "badger", "stork"),
    "crop plant fruit vegetable product item": ("apple", "barley", "carrot", "lentil", "plum"),
    "material": ("oak", "steel", "glass", "linen", "stone"),
    "cargo goods": ("grain", "timber", "coal", "cotton", "salt"),
    "format size": ("small", "medium", "large", "wide"),
    "specialty": ("cardiology", "surgery", "dentistry", "neurology", "optics"),
    "profession job role occupation position": ("nurse", "pilot", "baker", "welder", "clerk"),
    "kind type category class group grade level quality tier priority severity": ("basic", "standard", "premium",
                                                                                  "special", "extra"),
    "weekday day_of_week": ("Monday", "Tuesday", "Thursday", "Friday", "Sunday"),
    "email mail": ("anna@example.org", "boris@example.org", "clara@example.org", "david@example.org",
                   "elena@example.org", "felix@example.org"),
    "phone": ("555-0101", "555-0122", "555-0134", "555-0147", "555-0158", "555-0169"),
    "code sku": ("A10", "B20", "C30", "D40", "E50", "F60"),
    "title book film movie song album": ("Harbour Lights", "Winter Road", "The Glass Key", "Night Train", "Blue Hour",
                                         "Far Shore", "Old Maps"),
    "author artist director actor singer employee manager customer client student teacher doctor patient owner "
    "driver member user person player coach winner assistant": _PEOPLE,
    "company brand maker manufacturer studio publisher label supplier vendor airline building": (
        "Alpine", "Borealis", "Castor", "Dynamo", "Equinox", "Fulcrum", "Granite"),
}  # fmt: skip
#: Last words of a column's name -> the range of its numbers, and the step between them.
_NUMBERS = {
    "year": (2018, 2025, 1),
    "month": (1, 12, 1),
    "age": (19, 68, 1),
    "salary wage income revenue budget earning turnover profit": (1200, 5200, 100),
    "population inhabitant": (12_000, 96_000, 1000),
    "rating star rank grade level priority class": (1, 5, 1),
    "score point mark": (35, 98, 1),
    "percent percentage rate discount share": (5, 60, 5),
    "count number num quantity qty amount part seat guest night renewal member child room hour day size stock age "
    "capacity attendance win loss goal visit": (1, 14, 1),
    "minute duration length delay second": (10, 150, 5),
    "runtime": (80, 180, 5),
    "page": (80, 480, 20),
    "price cost fee fine total dues due tax charge payment balance value spent tip bill": (8, 95, 1),
    "weight kilo ton mass load height width depth distance mile kilometer area acre speed power": (20, 400, 10),
    "id latitude longitude effort": (1, 60, 1),
}
_PERSON = re.compile(r"(ers|ors|ents|ists|ians|ics|ees|people|persons|staff|users|pilots|guests|kids|children)$")
_DATED = frozenset(["date", "on", "at", "day", "created", "updated", "birthday", "deadline"])
_TIMED = frozenset(["time", "timestamp", "datetime"])
_PERSONAL = frozenset(["first", "last", "full", "given", "family", "user", "nick", "sur"])
_FLAGS = frozenset(("is", "has", "was", "can"))
_UNITS = frozenset(
    ("kg", "lb", "lbs", "km", "cm", "mm", "usd", "eur", "gbp", "pct", "sqft", "sqm", "mph", "kmh", "ms", "secs")
)
_ENDS = ("status", "country", "region", "city", "address", "category", "name", "date", "time", "type", "code", "price",
         "amount", "balance", "salary")  # fmt: skip
_WHOLE = frozenset(("datetime", "runtime", "velocity", "capacity", "candidate", "update", "mandate", "prototype"))
_DATE = re.compile(r"(\d{4})(?:-(\d\d))?(?:-(\d\d))?-?(?: .*)?")
_NUMBER_TYPE = re.compile("INT|REAL|FLOA|DOUB|DEC|NUM|BOOL", re.IGNORECASE)
_DATE_TYPE = re.compile("DATE|TIME", re.IGNORECASE)
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


@dataclass
class Column:
    """Facts about a column, inferred from a query.

    Attributes:
        met: values that meet its conditions, as far as they are known.
        missed: constants beside them, which some condition does not meet.
        likes: patterns that it is compared with.
        tie: columns of one tie are joined, and share their values.
        flag: it is a condition by itself.
    """

    sort: Sort | None = None
    met: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    likes: list[str] = field(default_factory=list)
    nullable: bool = False
    tie: int | None = None
    flag: bool = False


def words(name: str) -> list[str]:
    """The words of a name, in lower case, without a unit at the end; `custstatus` is `cust` and `status`."""
    parts = _split(name)
    if len(parts) > 1 and parts[-1] in _UNITS:
        parts.pop()
    return [*parts[:-1], *_apart(parts[-1])]


def _split(name: str) -> list[str]:
    return [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)] or [name]


@cache
def _apart(word: str) -> tuple[str, ...]:
    """A word, before and after another that names written in one often end in."""
    end = next((one for one in _ENDS if word.endswith(one) and word not in (one, *_WHOLE)), None)
    return (word,) if end is None else (word.removesuffix(end), end)


def sort_by_name(name: str) -> Sort:
    """Kind of values of a column, inferred from its name."""
    parts = words(name)
    if parts[-1] in _DATED or parts[-1] in _TIMED or parts[0] in ("date", "created", "updated"):
        return "date"
    counted = _split(name)[-1] in _UNITS or _looked_up(parts, _NUMBERS) is not None
    return "number" if _is_flag(parts) or (counted and not _is_text(parts)) else "text"


def sort_by_type(declared: str, name: str) -> Sort:
    """Kind of values of a column by its declared type, which may keep dates as texts."""
    if _NUMBER_TYPE.search(declared):
        return "number"
    named = sort_by_name(name)
    return "date" if _DATE_TYPE.search(declared) or named == "date" else "text" if declared else named


def _is_flag(parts: Sequence[str]) -> bool:
    return len(parts) > 1 and parts[0] in _FLAGS


def is_unheard_of(name: str) -> bool:
    """Whether the name of a column does not tell what its values are."""
    parts = words(name)
    return parts[-1] not in ("name", *_DATED, *_TIMED) and all(
        _looked_up(parts, one) is None for one in (_TEXTS, _NUMBERS)
    )


def _is_text(parts: Sequence[str]) -> bool:
    """Whether the last word may be of texts and of numbers alike, where texts are the rule."""
    return parts[-1] in ("class", "grade", "level", "priority", "area", "member", "child", "guest")


def is_counted(name: str) -> bool:
    """Whether a column name suggests a number."""
    return sort_by_name(name) == "number"


@cache
def is_plain(name: str) -> bool:
    """Whether SQLite takes a name without quotes."""
    if not _WORD.fullmatch(name):
        return False
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute(f"CREATE TABLE {name} ({name} TEXT)")
        except sqlite3.OperationalError:
            return False
    return True


def is_name(column: str) -> bool:
    """Whether a column contains the names of its table's rows."""
    return words(column)[-1:] in (["name"], ["title"], ["email"], ["phone"], ["code"])


def pool(table: str, name: str, column: Column, random: Random, size: int) -> list[str]:
    """Possible values of a column, as SQL: first those that meet its conditions, then others, up to `size`."""
    sort = column.sort or sort_by_name(name)
    if sort == "number":
        return _numbers(name, column, random, size)
    made = _dates(column, random, size) if sort == "date" else _texts(table, name, column, random)
    return ["'" + text.replace("'", "''") + "'" for text in made]


def _looked_up(parts: Sequence[str], lexicon: Mapping[str, FoundT]) -> FoundT | None:
    """What a lexicon has for the last of some words, or for its singular."""
    wanted = {parts[-1], parts[-1].removesuffix("s")} if parts else set()
    return next((entry for listed, entry in lexicon.items() if wanted & set(listed.split())), None)


def _numbers(name: str, column: Column, random: Random, size: int) -> list[str]:
    constants = [float(text) for text in [*column.met, *column.missed] if _NUMBER.fullmatch(text)]
    if column.flag or (not constants and _is_flag(words(name))):
        return ["1", "0"]
    low, high, step = _looked_up(words(name), _NUMBERS) or (2, 60, 1)
    if constants:
        step = step_of(max(map(abs, constants)))
        turns = (1, -1, 2, *range(3, size))
        others = [max(value + turn * step, min(value, 0.0)) for turn in turns for value in constants]
    else:
        listed = range(low, high + 1, step)
        others = [float(value) for value in random.sample(listed, min(len(listed), size + 2))]
    return [written(value) for value in dict.fromkeys([*constants, *others])]


def step_of(value: float) -> int:
    """Distance between a constant and its neighbouring values."""
    return max(1, round(abs(value) / 10))


def written(value: float) -> str:
    """A number as SQL writes it."""
    return str(int(value)) if value == int(value) else f"{value:g}"


def _dates(column: Column, random: Random, size: int) -> list[str]:
    patterns = [text.split("%")[0] for text in column.likes]
    texts = [*column.met, *patterns, *column.missed]
    constants = [made for text in texts if (made := day_of(text, random)) is not None]
    year = constants[0].year if constants else 2024
    years = [year - turn % 2 if constants else year for turn in range(1, size + 1)]
    others = [date(each, 1, 1) + timedelta(days=random.randrange(365)) for each in years]
    near = [value + timedelta(days=random.choice((-70, -35, 35, 70))) for value in constants]
    return [value.isoformat() for value in dict.fromkeys([*constants, *others[:1], *near, *others[1:]])]


def day_of(text: str, random: Random) -> date | None:
    """Parse the start of a text as a date; None if it is none."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    month, day = match[2] or f"{random.randint(1, 12):02}", match[3] or f"{random.randint(1, 28):02}"
    try:
        return date(int(match[1]), int(month), int(day))
    except ValueError:
        return None


def beyond(text: str, sort: Sort, *, up: bool) -> str:
    """A value on one side of a constant."""
    if sort == "number":
        step = step_of(float(text))
        return written(max(float(text) + (step if up else -step), min(float(text), 0)))
    day = day_of(text, Random(text)) if sort == "date" else None
    return text if day is None else (day + timedelta(days=40 if up else -40)).isoformat()


def between(low: str, high: str, sort: Sort) -> str:
    """A value between two constants."""
    if sort == "number":
        return written((float(low) + float(high)) // 2)
    days = [day_of(text, Random(text)) for text in (low, high)]
    first, last = days
    return low if first is None or last is None else (first + (last - first) // 2).isoformat()


def _texts(table: str, name: str, column: Column, random: Random) -> list[str]:
    listed = _lexicon(table, name)
    constants = [*column.met, *(_matching(text, listed) for text in column.likes), *column.missed]
    if constants and all(map(str.isdigit, constants)):  # of one width, else they would be numbers
        listed = [str(int(text) + turn).zfill(len(text)) for turn in range(1, 7) for text in constants]
    others = [text for text in listed if text not in constants]
    random.shuffle(others)
    return list(dict.fromkeys([*constants, *others]))


def _lexicon(table: str, name: str) -> list[str]:
    parts = words(name)
    found: Sequence[str] | None
    if parts[-1] == "name":
        of = parts[-2:-1]
        person = of[0] in _PERSONAL if of else _PERSON.search(table) is not None
        found = (_looked_up(of, _TEXTS) if of else None) or (_PEOPLE if person else _THINGS)
    else:
        found = _looked_up(["code"] if parts[-1].endswith("id") else parts, _TEXTS)
    return list(found or (f"{parts[-1]} {letter}" for letter in "ABCDEFGH"))


def _matching(pattern: str, listed: Sequence[str]) -> str:
    """A text that a pattern of LIKE matches: of a list, else made of the pattern itself."""
    form = "".join({"%": ".*", "_": "."}.get(sign, re.escape(sign)) for sign in pattern)
    fitting = (text for text in listed if re.fullmatch(form, text, re.IGNORECASE | re.DOTALL))
    begin, *middle, end = pattern.replace("_", "a").split("%") if "%" in pattern else (pattern.replace("_", "a"), "")
    made = " ".join(part.strip() for part in (begin or "Old", *middle, end or ("" if begin else "House")) if part)
    return next(fitting, made if re.fullmatch(form, made, re.IGNORECASE) else "".join((begin, *middle, end)))


def met_by(node: exp.Expr, texts: Sequence[str], sort: Sort, *, turned: bool) -> tuple[list[str], list[str]]:
    """Values that meet a comparison with constants, and such that do not."""
    if isinstance(node, exp.EQ | exp.In):
        return list(texts), []
    if isinstance(node, exp.NEQ):
        return [], list(texts)
    if isinstance(node, exp.Between) and len(texts) == 2:
        return [between(texts[0], texts[1], sort)], [beyond(texts[1], sort, up=True), texts[0]]
    if isinstance(node, exp.GT | exp.GTE | exp.LT | exp.LTE):
        up = isinstance(node, exp.GT | exp.GTE) is not turned
        return [beyond(texts[0], sort, up=up)], [beyond(texts[0], sort, up=not up), texts[0]]
    return [], []
