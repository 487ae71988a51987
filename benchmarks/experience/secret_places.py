"""The bench `secret_places`: texts of a file with a hole for a secret, filled, put into executions and redacted."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import click

from benchmarks.experience import seeded_secrets
from benchmarks.output import print_result
from capibara_assets.errors import InputError

_KIND = re.compile(r"(?P<name>passwords?|base32|uuid|random(?=\d)|hex(?=\d)|base64_(?=\d))(?P<length>[1-9]\d{0,3})?")
WORDS = ("Copper", "Lantern", "Harbor", "Violet", "Anchor", "Meadow", "Puzzle", "Orbit", "Tunnel", "Jacket")
#: Passwords as people choose and generators make them: {w} and {W} are words, {s} is a sign.
_SHAPES = (
    "{W}{s}{dig:4}{let:3}", "{w}{w}{dig:2}", "{W}{dig:2}{W}", "{w}-{w}-{dig:3}", "{W}{s}{W}{s}", "{an:14}", "{let:13}",
    "{let:6}{s}{let:6}{s}", "{an:5}.{an:5}-{an:3}", "{an:5}-{an:5}_{an:3}", "{s}{an:12}", "{an:4}{s}{an:4}{s}{an:3}",
)  # fmt: skip
_MADE = {"jwt": seeded_secrets.json_web_token, "private_key": seeded_secrets.private_key}
BEGINNING, END = "{:a}", "{:b}"
SHIPPED: dict[str, list[dict[str, Any]]] = {
    "secret": [
        {"name": "a variable before a command", "template": "$ PGPASSWORD={} psql -h db -U app", "value": "password"},
        {"name": "a header", "template": "curl -H 'Authorization: Bearer {}' https://api.invalid", "value": "random40"},
        {"name": "an argument", "template": 'client = Client(api_key="{}")', "value": "random32"},
    ],
    "clean": [
        {"name": "a commit", "template": "commit {} (HEAD -> main)", "value": "hex40"},
        {"name": "a reference", "template": "password: ${DB_PASSWORD}", "value": None},
    ],
}
"""What is measured without a file: a few places that every redactor should know, so that the command says something."""
HELD_OUT = Path(__file__).parent / "places" / "held-out.json"
"""Places that no rule is ever mended by: their misses are not looked at, or their figures would say nothing more."""


@click.command("secret_places")
@click.option("--places", type=click.Path(path_type=Path), help="JSON file of templates; default: five of our own.")
@click.option("--held-out", is_flag=True, help="The shipped places that rules are never mended by: totals alone.")
@click.option("--shapes", is_flag=True, help="Passwords of all shapes that people and generators make, not of one.")
@click.option("--values", default=5, show_default=True, help="Values that are drawn for each template.")
@click.option("--seed", default=1, show_default=True, help="Of the drawn values.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def secret_places(places: Path | None, held_out: bool, shapes: bool, values: int, seed: int, as_json: bool) -> None:
    """Recall and precision of redaction for any file of places, in code, output, errors, tracebacks and bullets.

    The file holds {"secret": [...], "clean": [...]}. An entry has `name`, `template` (in which {} stands for a value;
    {:a} and {:b} for the halves of one) and `value`, the kind to draw: password, randomN, hexN, base32, base64_N, uuid,
    jwt, private_key or a shape such as ab_{an:36}, or null where a clean text is complete; or `values`, a list of them.

    --held-out prints neither the names of what was missed nor those of clean texts that were changed.
    """
    if held_out and places is not None:
        raise InputError("--held-out and --places were both given: give one of them")
    listed = read_places(HELD_OUT) if held_out else SHIPPED if places is None else read_places(places)
    if shapes:
        listed = {**listed, "secret": list(map(_of_all_shapes, listed["secret"]))}
    figures = measure(listed, values, seed)
    print_result(
        {name: figures[name] for name in figures if not held_out or name not in ("missed", "touched")}, as_json
    )


@dataclass(frozen=True)
class Filled:
    """A text of a place, and the part of it that has to go (None: all of it has to stay)."""

    name: str
    text: str
    secret: str | None


def read_places(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Reads a file of places.

    Raises:
        InputError: the file cannot be read, is no JSON, or has no list `secret` and `clean` of templates.
    """
    try:
        document = json.loads(path.read_text("utf-8"))
        found = {kind: [*document[kind]] for kind in ("secret", "clean")}
        for each in (*found["secret"], *found["clean"]):
            if not isinstance(each["template"], str):
                raise TypeError(f"template of {each.get('name')!r} is no text")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: {error}; a file of places is JSON: the lists `secret` and `clean` of entries with a `template`"
        ) from None
    return found


def measure(places: Mapping[str, list[dict[str, Any]]], values: int, seed: int) -> dict[str, Any]:
    """The figures, as `python -m benchmarks secret_places --json` prints them.

    A secret counts as covered if it is gone (`is_left`) from the code, the output, the error and the traceback of an
    execution, and from a bullet. Precision counts the clean texts that were changed in any of these as wrong.
    """
    draw = Random(seed)
    secret = [each for entry in places["secret"] for each in filled(entry, values, draw, secret=True)]
    clean = [each for entry in places["clean"] for each in filled(entry, values, draw, secret=False)]
    left = redacted([each.text for each in (*secret, *clean)])
    missed: dict[str, Counter[str]] = {}
    covered = 0
    for each, carriers in zip(secret, left, strict=False):
        uncovered = [name for name, text in carriers.items() if is_left(str(each.secret), text)]
        covered += not uncovered
        if uncovered:
            missed.setdefault(each.name, Counter()).update(uncovered)
    touched = [
        each.name
        for each, carriers in zip(clean, left[len(secret) :], strict=True)
        if any(text != each.text for text in carriers.values())
    ]
    return {
        "recall": round(covered / len(secret), 4) if secret else None,
        "precision": round(covered / (covered + len(touched)), 4) if covered else None,
        "secrets": len(secret),
        "clean": len(clean),
        "touched": dict(Counter(touched)),
        "missed": {name: dict(carriers) for name, carriers in missed.items()},
        "seed": seed,
    }


def is_left(secret: str, text: str) -> bool:
    """Whether half of a line of the secret, and at least eight characters of it, still stand in the text."""
    for line in secret.splitlines():
        size = min(len(line), max(8, len(line) // 2))
        starts = () if line.startswith("-----") else range(len(line) - size + 1)
        if any(line[start : start + size] in text for start in starts):
            return True
    return False


def filled(entry: Mapping[str, Any], values: int, draw: Random, *, secret: bool) -> list[Filled]:
    """The texts of one entry, each with another value.

    Raises:
        InputError: the entry has a value but no place for it, or is a secret without one: nothing could be missed.
    """
    template, name = entry["template"], str(entry.get("name", entry["template"]))
    kind, listed = entry.get("value"), entry.get("values")
    if kind is None and not listed:
        if secret:
            raise InputError(f"the secret {name!r} has no value: give `value`, the kind to draw, or `values`, a list")
        return [Filled(name, template, None)]
    if "{}" not in template and not (BEGINNING in template and END in template):
        raise InputError(f"the template of {name!r} has no place for a value: write {{}}, or {BEGINNING} and {END}")
    drawn = [str(value) for value in listed or ()][:values] or [value_of(str(kind), draw) for _ in range(values)]
    if BEGINNING in template:
        halves = [(value[: len(value) // 2], value[len(value) // 2 :]) for value in drawn]
        return [Filled(name, template.replace(BEGINNING, a).replace(END, b), b if secret else None) for a, b in halves]
    return [Filled(name, template.replace("{}", value), value if secret else None) for value in drawn]


def value_of(kind: str, draw: Random) -> str:
    """A value of a kind.

    Raises:
        InputError: there is no such kind.
    """
    if kind in _MADE:
        return _MADE[kind](draw)
    if "{" in kind and (shaped := seeded_secrets.filled(kind, draw)) != kind:
        return shaped
    match = _KIND.fullmatch(kind)
    if match is None:
        raise InputError(
            f"no values of kind {kind!r} can be drawn: name password, passwords, randomN, hexN, base32, base64_N, "
            "uuid, jwt, private_key or a shape as ab_{an:36}, or list them under `values`"
        )
    name, length = match["name"], int(match["length"] or 0)
    if name == "passwords":
        shape = re.sub(r"\{[wWs]\}", lambda hole: _piece(hole[0][1], draw), draw.choice(_SHAPES))
        return seeded_secrets.filled(shape, draw)
    if name == "password":
        return seeded_secrets.filled(f"{draw.choice(WORDS)}{draw.choice('!@#%')}{{dig:4}}{{let:3}}", draw)
    shape = {
        "random": f"{{an:{length}}}",
        "hex": f"{{hex:{length}}}",
        "base32": "{up:32}",
        "base64_": f"{{b64:{length - 1}}}=",
        "uuid": "{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}",
    }[name]
    return seeded_secrets.filled(shape, draw)


def _of_all_shapes(entry: dict[str, Any]) -> dict[str, Any]:
    """A place of passwords, filled with those of all shapes; any other place unchanged."""
    return entry | {"value": "passwords"} if entry.get("value") == "password" else entry


def _piece(hole: str, draw: Random) -> str:
    """A sign (`s`), or a word (`w`, `W` with a capital)."""
    word = draw.choice(WORDS)
    return draw.choice("!@#%*?+") if hole == "s" else word if hole == "W" else word.lower()


CARRIERS = ("code", "stdout", "error_value", "traceback", "bullet")


def redacted(texts: list[str]) -> list[dict[str, str]]:
    """What is left of each text in each carrier; every execution has a sandbox of its own.

    Raises:
        InputError: a reader of logs changes a text, so that nothing could be said of it.
    """
    from capibara_assets.executions.formats.envelope_reader import read_line
    from capibara_assets.executions.secrets.redact import redact_sessions, redact_text

    now = datetime.now(UTC)
    fields = [name for name in CARRIERS if name != "bullet"]
    sessions = [[read_line(_line(text, name), now)] for text in texts for name in fields]
    for (record,), text in zip(sessions, (text for text in texts for _ in fields), strict=True):
        if text not in (getattr(record, name) for name in fields):
            raise InputError(f"the reader of logs changes {text!r}: write it without blanks at its ends")
    redact_sessions(sessions)
    records = iter(sessions)
    return [
        {name: str(getattr(next(records)[0], name)) for name in fields} | {"bullet": redact_text(text)}
        for text in texts
    ]  # fmt: skip


def _line(text: str, carrier: str) -> bytes:
    """A log line with an execution that has the text in its code, its output, its error or its traceback."""
    error = {"name": "RuntimeError", "value": "failed", "traceback": "Traceback: RuntimeError: failed"}
    error |= {"value": text} if carrier == "error_value" else {"traceback": text} if carrier == "traceback" else {}
    execution: dict[str, Any] = {
        "results": [],
        "logs": {"stdout": [text] if carrier == "stdout" else [], "stderr": []},
        "error": error if carrier in ("error_value", "traceback") else None,
    }
    record = {
        "sandbox_id": "sandbox-of-the-bench",
        "execution_id": "execution-of-the-bench",
        "timestamp": "2026-01-05T08:00:00Z",
        "language": "bash" if text.startswith("$") else "python",
        "code": text if carrier == "code" else "main()",
        "execution": execution,
    }
    return json.dumps(record).encode()
