"""Folders that hostile code left are removed, however deep, closed or oddly named, and nothing beside them is."""

import os
import sys
from pathlib import Path

from capibara_assets.executions.sandbox.leftovers import remove_tree

DEEPER_THAN_A_STACK = sys.getrecursionlimit() + 100


def test_what_is_deep_closed_or_odd_goes_and_what_links_lead_to_stays(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "left"
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed" / "inner" / "file").write_text("x")
    (folder / "closed" / "inner").chmod(0)
    (folder / "closed").chmod(0)
    (folder / "link").symlink_to(outside)
    (folder / "closed link").symlink_to(outside / "kept.txt")
    (folder / ".lifted-0").mkdir()
    (folder / ".lifted-0" / "full").write_text("x")
    (folder / os.fsdecode(b"\xff\n")).mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(DEEPER_THAN_A_STACK):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    remove_tree(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (outside / "kept.txt").read_text() == "kept"
    remove_tree(folder)  # that is gone already
