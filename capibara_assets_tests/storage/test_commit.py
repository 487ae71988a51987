"""A folder is copied whole, or one error says which of its files could not be written."""

import errno
import os
from pathlib import Path

import pytest

from capibara_assets.storage.commit import copy_folder
from capibara_assets.storage.digests import tree_digest


def test_a_full_disk_is_one_error_that_names_the_file_it_could_not_write(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    for name in ("deep/a", "b"):
        (source / name).write_bytes(b"x" * 100_000)
    copy_folder(source, target)
    assert tree_digest(target) == tree_digest(source)
    (target / "deep" / "a").unlink()
    (target / "deep" / "a").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as full:
        copy_folder(source, target, dirs_exist_ok=True)
    assert (full.value.errno, full.value.filename2) == (errno.ENOSPC, str(target / "deep" / "a"))
    assert full.value.filename == str(source / "deep" / "a")


def test_what_is_no_error_of_the_system_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "pipe")
    with pytest.raises(OSError, match="is a named pipe"):
        copy_folder(tmp_path / "source", tmp_path / "target")
