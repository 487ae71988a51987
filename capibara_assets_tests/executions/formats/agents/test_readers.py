"""What a head that may be an agent's log holds is found as each mark by itself would be."""

import random

import pytest

from capibara_assets.executions.formats.agents import readers
from capibara_assets.executions.formats.agents.readers import READERS, may_be_agents

MARKS = sorted({mark for reader in READERS for mark in reader.marks})


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_is_seen_wherever_it_stands(mark: bytes) -> None:
    for before, after in (
        (b"", b""),
        (b'{"a":', b": 1}"),
        (b'"x', b'x"'),
        (b'""', b'""'),
        (b'\\"', b"\\"),
        (b"\n", b"\xff"),
    ):
        assert may_be_agents(before + mark + after)


def test_pieces_of_marks_are_seen_as_each_mark_by_itself_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "READERS", tuple(one for one in READERS if b'"session"' in one.marks))
    marks = [mark for reader in readers.READERS for mark in reader.marks]
    chance, found = random.Random(1), 0
    pieces = [b'"', b'"', b"session", b"x", b" ", b":", *marks]
    for _ in range(3000):
        head = b"".join(chance.choices(pieces, k=5))
        found += may_be_agents(head)
        assert may_be_agents(head) == any(mark in head for mark in marks), head
    assert 300 < found < 2900
