"""The log of certificates: a chain that several processes write, that crashes do not break, and nobody rewrites."""

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.consensus.certificates.certificate_log import append_certificate, parsed_log, read_log
from capibara_assets.errors import IntegrityError
from capibara_assets.storage.digests import sha256_bytes


def digest(name: object) -> str:
    return sha256_bytes(str(name).encode())


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of four certificates."""
    for number in range(4):
        append_certificate(tmp_path / "log.jsonl", digest(f"election {number}"), digest(number))
    return tmp_path / "log.jsonl"


def test_each_line_names_the_one_before_it(log: Path) -> None:
    lines = log.read_bytes().splitlines()
    documents = [json.loads(line) for line in lines]
    assert [one["sequence"] for one in documents] == [1, 2, 3, 4]
    assert [one["previous"] for one in documents] == [None, *map(sha256_bytes, lines[:-1])]
    assert [one["certificate"] for one in documents] == [digest(number) for number in range(4)]
    found = read_log(log)
    assert found.problem == "" and found.head == sha256_bytes(lines[-1])
    before = log.read_bytes()
    assert append_certificate(log, digest("election 1"), digest(1)).sequence == 2
    assert log.read_bytes() == before, "it stands there already"


def test_an_election_that_was_held_again_has_both_certificates(log: Path) -> None:
    before = log.read_bytes()
    append_certificate(log, digest("election 1"), digest("other"))
    assert log.read_bytes().startswith(before)
    assert read_log(log).of(digest("election 1")) == (digest(1), digest("other"))


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:1], *lines[2:]],  # removed
        lambda lines: lines[1:],
        lambda lines: [lines[0], lines[2], lines[1], lines[3]],  # moved
        lambda lines: [lines[0], lines[1].replace(b'"sequence":2', b'"sequence":3'), *lines[2:]],
        lambda lines: [lines[0], lines[1].replace(digest(1).encode(), digest(9).encode()), *lines[2:]],  # replaced
        lambda lines: [lines[0], lines[1], lines[1], *lines[2:]],  # twice
        lambda lines: [lines[0], b"", *lines[1:]],
        lambda lines: [lines[0], lines[1][:40], *lines[2:]],  # torn in the middle
        lambda lines: [lines[0], lines[1] + b" ", *lines[2:]],
        lambda lines: [*lines[:3], lines[3].replace(b'{"', b'{ "')],
    ],
)
def test_a_changed_chain_is_found_and_not_appended_to(change: Callable[[list[bytes]], list[bytes]], log: Path) -> None:
    log.write_bytes(b"\n".join(change(log.read_bytes().splitlines())) + b"\n")
    assert "the log was changed" in read_log(log).problem
    before = log.read_bytes()
    with pytest.raises(IntegrityError, match="restore it from a copy"):
        append_certificate(log, digest("new"), digest("new"))
    assert log.read_bytes() == before


def test_a_truncated_log_has_another_head(log: Path) -> None:
    """The chain of what is left is whole: who remembers the head finds it."""
    head, lines = read_log(log).head, log.read_bytes().splitlines()
    log.write_bytes(b"\n".join(lines[:3]) + b"\n")
    left = read_log(log)
    assert left.problem == "" and head not in {line.digest for line in left.lines}


@given(st.integers(0, 10_000))
def test_a_crash_at_any_byte_loses_no_line_that_was_written(cut: int) -> None:
    data = _chain(3)
    kept = data[: cut % (len(data) + 1)]
    found = parsed_log(kept)
    whole = [line for line in data.splitlines() if kept.startswith(data[: data.index(line) + len(line)])]
    assert found.problem == "" and [line.text for line in found.lines] == whole


def _chain(length: int) -> bytes:
    from capibara_assets.consensus.certificates.certificate_log import CertificateLogLine

    lines, previous = [], None
    for number in range(1, length + 1):
        line = CertificateLogLine(
            sequence=number, previous=previous, election=digest(f"e{number}"), certificate=digest(number), time="t"
        )
        previous = line.digest
        lines.append(line.text)
    return b"\n".join(lines) + b"\n"


@pytest.mark.parametrize("left", [b'{"certificate":"ab', b"\xff", b"{}"])
def test_what_a_crash_left_is_cut_off_by_the_next_line(left: bytes, log: Path) -> None:
    before = log.read_bytes()
    log.write_bytes(before + left)
    assert len(read_log(log).lines) == 4 and read_log(log).problem == ""
    append_certificate(log, digest("new"), digest("new"))
    assert log.read_bytes().startswith(before) and len(read_log(log).lines) == 5


def test_a_missing_last_newline_costs_nothing(log: Path) -> None:
    before = log.read_bytes()
    log.write_bytes(before.rstrip(b"\n"))
    assert len(read_log(log).lines) == 4
    append_certificate(log, digest("new"), digest("new"))
    assert log.read_bytes().startswith(before) and len(read_log(log).lines) == 5 and read_log(log).problem == ""


def _append(log: Path, who: int) -> None:
    for number in range(10):
        append_certificate(log, digest(f"{who} {number}"), digest((who, number)))


def test_processes_that_append_at_once_make_one_chain(tmp_path: Path) -> None:
    log, context = tmp_path / "log.jsonl", multiprocessing.get_context("fork")
    processes = [context.Process(target=_append, args=(log, who)) for who in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    found = read_log(log)
    assert found.problem == "" and len(found.lines) == 40
    assert {line.certificate for line in found.lines} == {digest((who, n)) for who in range(4) for n in range(10)}


def test_a_full_disk_leaves_it_as_it_was(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = log.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        append_certificate(log, digest("new"), digest("new"))
    assert log.read_bytes() == before


@pytest.mark.parametrize("ended", [b"", b"\n"])
def test_a_last_line_that_the_disk_had_not_written_is_cut_off(log: Path, ended: bytes) -> None:
    """After a loss of power it may have its length and zeros; nobody was told that it is there."""
    lines = log.read_bytes().splitlines()
    kept, torn = b"\n".join(lines[:-1]) + b"\n", lines[-1][:20] + bytes(len(lines[-1]) - 20)
    log.write_bytes(kept + torn + ended)
    assert read_log(log).problem == "" and len(read_log(log).lines) == len(lines) - 1
    append_certificate(log, digest("new"), digest("new"))
    assert log.read_bytes().startswith(kept) and b"\0" not in log.read_bytes() and not read_log(log).problem
    log.write_bytes(kept + torn + b"\n" + lines[-1] + b"\n")
    assert "the log was changed" in read_log(log).problem
