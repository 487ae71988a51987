"""The local copy of a remote folder: only what changed is fetched, nothing half, and a crash is made good."""

from pathlib import Path

import fsspec
import pytest

from capibara_assets.errors import InputError
from capibara_assets.storage.mirror import file_system, is_remote, mirror


@pytest.fixture
def remote(tmp_path: Path) -> str:
    system = fsspec.filesystem("memory")
    for name in ("e2b_logs/a.jsonl", "e2b_logs/day/b.jsonl", "playbooks/p.txt"):
        system.pipe_file(f"/{tmp_path.name}/{name}", name.encode())
    return f"memory://{tmp_path.name}"


def names(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_what_is_new_grown_or_gone_is_followed(remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system, root = file_system(remote)
    fetched: list[str] = []
    get = system.get
    monkeypatch.setattr(system, "get", lambda sources, targets: (fetched.extend(sources), get(sources, targets)))
    folder = tmp_path / "copy"
    assert mirror(remote, folder) == folder
    assert names(folder) == {name: name for name in ("e2b_logs/a.jsonl", "e2b_logs/day/b.jsonl", "playbooks/p.txt")}
    assert len(fetched) == 3
    mirror(remote, folder)
    assert len(fetched) == 3
    system.pipe_file(f"{root}/e2b_logs/a.jsonl", b"grown by more")
    system.rm(f"{root}/playbooks/p.txt")
    mirror(remote, folder)
    assert names(folder) == {"e2b_logs/a.jsonl": "grown by more", "e2b_logs/day/b.jsonl": "e2b_logs/day/b.jsonl"}
    assert len(fetched) == 4
    (folder / "e2b_logs/a.jsonl").unlink()  # what somebody took away comes back
    mirror(remote, folder)
    assert len(names(folder)) == 2 and len(fetched) == 5


def test_a_crash_leaves_whole_files_and_the_next_call_goes_on(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, _ = file_system(remote)
    get = system.get

    def broken(sources: list[str], targets: list[str]) -> None:
        Path(targets[0]).write_text("half of it")
        raise ConnectionError("the network went away")

    monkeypatch.setattr(system, "get", broken)
    with pytest.raises(ConnectionError):
        mirror(remote, tmp_path / "copy")
    assert names(tmp_path / "copy") == {}
    monkeypatch.setattr(system, "get", get)
    mirror(remote, tmp_path / "copy")
    assert len(names(tmp_path / "copy")) == 3
    assert [path for path in tmp_path.iterdir() if "staging" in path.name] == []


def test_places_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"memory://nowhere-\d+ does not exist"):
        mirror("memory://nowhere-7", tmp_path / "copy")
    with pytest.raises(InputError, match="cannot be opened"):
        mirror("nonsense://bucket", tmp_path / "copy")
    assert is_remote("gs://bucket/a") and not is_remote("/data") and not is_remote("file:///data")
