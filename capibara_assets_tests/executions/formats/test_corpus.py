"""What coverage-guided fuzzing found interesting, read once more: `make fuzz` made it, from what these tests read."""

import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from capibara_assets.executions.formats.agents.readers import READERS
from capibara_assets.executions.formats.agents.runs import LogDocument
from capibara_assets.executions.formats.detection import is_whole, layout, read_parts
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets.playbooks.formats.detection import read_contents
from capibara_assets_tests.executions.conftest import NOW

CORPUS = Path(__file__).with_name("corpus.tar.xz")


def inputs(step: int) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(CORPUS) as archive:
        for member in archive.getmembers()[::step]:
            content = archive.extractfile(member)
            assert content is not None
            yield member.name.partition("/")[0], content.read()


@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.extended)])
def test_no_reader_fails_on_what_fuzzing_kept(step: int) -> None:
    readers = {reader.name: reader for reader in READERS}
    read: Counter[str] = Counter()
    for name, data in inputs(step):
        if name == "playbook":
            read[name] += 1
            for own_folder in (True, False):
                read_contents(data, own_folder=own_folder)
            continue
        layout(data.split(b"\n"))
        is_whole(data)
        reader, document = readers.get(name), LogDocument(data)
        if reader is not None and any(mark in data for mark in reader.marks) and reader.reads(document):
            read[name] += 1
            list(reader.entries(document))
        for part in read_parts(data, NOW):
            fault = part.content if isinstance(part.content, Fault) else None
            assert fault is None or fault.reason != "reader_failed", fault
    assert read.keys() >= readers.keys() | {"playbook"}, "every reader has inputs of its own"
