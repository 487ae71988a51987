"""The process of the bench `fuzz`: one reader under atheris, until it raises, hangs or has had its inputs."""

import contextlib
import json
import random
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import atheris
import numpy as np

from capibara_assets_tests.executions.formats.agents.damaged_values import REPLACEMENTS, places_in

with atheris.instrument_imports(include=["capibara_assets.executions.formats", "capibara_assets.playbooks.formats"]):
    from capibara_assets.executions.formats.agents.readers import READERS
    from capibara_assets.executions.formats.agents.recorded import records_of
    from capibara_assets.executions.formats.agents.runs import LogDocument, Reader
    from capibara_assets.executions.formats.detection import is_whole, layout, read_parts
    from capibara_assets.executions.formats.envelope_reader import read_quickly
    from capibara_assets.executions.formats.lines import key_ends
    from capibara_assets.executions.formats.strict_json import Fault
    from capibara_assets.playbooks.formats.detection import read_contents

NOW = datetime(2026, 11, 1, tzinfo=UTC)
"""Fixed: an input is read the same way when it is read again."""
Target = Callable[[bytes], Any]
_INSTEAD = (*REPLACEMENTS, 2**70, "0", "```\nx\n```", "2026-01-01T00:00:00Z", "<a>", "error")


def read_agents_log(reader: Reader, data: bytes) -> None:
    """Everything that a reader of agents' logs makes of a document that it takes for its own."""
    document = LogDocument(data)
    if any(mark in data for mark in reader.marks) and reader.reads(document):
        check(*records_of(document, reader, NOW))


def check(*found: Any) -> None:
    """A reader that fails is made a fault of its log."""
    for one in found:
        assert not (isinstance(one, Fault) and one.reason == "reader_failed"), one


def read_log(data: bytes) -> None:
    """A log by its content, as the ingest finds its reader."""
    layout(data.split(b"\n"))
    is_whole(data)
    check(*(part.content for part in read_parts(data, NOW)))


def read_line(data: bytes) -> None:
    """The quick reader says what the strict one does."""
    line = data.replace(b"\n", b" ")
    (keys,) = key_ends(line + b"\n", np.array([len(line) + 1]))
    fast = read_quickly(line, NOW, keys)
    if fast is not None:
        assert [part.content for part in read_parts(line, NOW)] == [fast]


def read_playbook(data: bytes) -> None:
    """The entries of a playbook in any of its formats."""
    read_contents(data, own_folder=True)
    read_contents(data, own_folder=False)


TARGETS: dict[str, Target] = {
    "log": read_log,
    "line": read_line,
    "playbook": read_playbook,
    **{reader.name: partial(read_agents_log, reader) for reader in READERS},
}


def mutated(data: bytes, size: int, seed: int) -> bytes:
    """libFuzzer's mutation of the bytes, or, of every other input that is JSON, of a value in it."""
    dice = random.Random(seed)
    if dice.random() < 0.6:
        with contextlib.suppress(ValueError, RecursionError):
            return _other_values(data, dice)[:size]
    return atheris.Mutate(data, size)  # type: ignore[no-any-return]


def _other_values(data: bytes, dice: random.Random) -> bytes:
    """A JSON document, or a row of JSON lines, with one to three of its values replaced, doubled, moved or gone."""
    text = data.decode()
    try:
        value = json.loads(text)
        rest = None
    except ValueError:
        rest = text.split("\n")
        at = dice.randrange(len(rest))
        value = json.loads(rest[at])
    holder = [value]
    for _ in range(dice.randint(1, 3)):
        places = list(places_in(holder))
        inside, key = dice.choice(places)
        match dice.randrange(5):
            case 0 if inside is not holder:
                del inside[key]
            case 1 if isinstance(inside, list) and inside is not holder:
                inside.insert(key, inside[key])
            case 2:
                other, place = dice.choice(places)
                inside[key] = json.loads(json.dumps(other[place]))
            case 3 if isinstance(inside[key], str):
                inside[key] = atheris.Mutate(inside[key].encode("utf-8", "replace"), 200).decode("utf-8", "replace")
            case _:
                inside[key] = dice.choice(_INSTEAD)
    if not holder:
        return b""
    if rest is None:
        return json.dumps(holder[0]).encode()
    rest[at] = json.dumps(holder[0])
    return "\n".join(rest).encode("utf-8", "replace")


def main() -> None:
    name = sys.argv[1]
    again = f"{sys.executable} -m {__spec__.name if __spec__ else __name__} {name}"  # a merge starts its first argument
    atheris.Setup([again, *sys.argv[2:]], TARGETS[name], custom_mutator=mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
