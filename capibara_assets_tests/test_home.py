"""What the suite itself stands on: a home made once and made anew when its sources change, and seconds per module."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from capibara_assets_tests import home
from capibara_assets_tests.durations import ModuleSeconds


@pytest.fixture
def makings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders that a home was made in, instead of by a run of the graph."""
    makings: list[Path] = []

    def make(folder: Path) -> None:
        makings.append(folder)
        (folder / "home").mkdir(parents=True)
        (folder / "home" / "ledger").write_text("made")

    monkeypatch.setattr(home, "_make", make)
    return makings


def test_a_home_is_made_once_and_a_copy_is_apart(tmp_path: Path, makings: list[Path]) -> None:
    first, second = home.made_home(tmp_path / "shelf"), home.made_home(tmp_path / "shelf")
    assert first == second and len(makings) == 1
    copy = first.copy(tmp_path / "copy")
    with (copy.folder / "home" / "ledger").open("a") as ledger:
        ledger.write(" and changed in place")
    assert (first.folder / "home" / "ledger").read_text() == "made"
    assert copy.deployment.home == tmp_path / "copy" / "home"


def test_changed_sources_make_another_home_in_place_of_the_old_one(
    tmp_path: Path, makings: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sources").mkdir()
    source = tmp_path / "sources" / "step.py"
    source.write_text("1")
    monkeypatch.setattr(home, "REPOSITORY", tmp_path)
    monkeypatch.setattr(home, "SOURCES", ("sources",))
    old = home.made_home(tmp_path / "shelf")
    source.write_text("2")
    new = home.made_home(tmp_path / "shelf")
    assert new != old and len(makings) == 2
    assert [path.name for path in (tmp_path / "shelf").glob("home-*")] == [new.folder.name]


def test_a_home_whose_making_failed_is_made_again(
    tmp_path: Path, makings: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> None:
        folder.mkdir()
        raise AssertionError("the run failed")

    with monkeypatch.context() as patch:
        patch.setattr(home, "_make", fail)
        with pytest.raises(AssertionError, match="the run failed"):
            home.made_home(tmp_path / "shelf")
    assert (home.made_home(tmp_path / "shelf").folder / "home").is_dir() and len(makings) == 1


def test_seconds_add_up_by_module(tmp_path: Path) -> None:
    table = ModuleSeconds(tmp_path / "docs" / "seconds.tsv", ("-m", "not slow"))

    def report(nodeid: str, when: str, duration: float) -> Any:
        return SimpleNamespace(nodeid=nodeid, when=when, duration=duration)

    for test, seconds in (("a.py::test_x", 1.0), ("b.py::test_y", 2.0), ("b.py::test_z[1::2]", 3.5)):
        for when in ("setup", "call", "teardown"):
            table.pytest_runtest_logreport(report(test, when, seconds))
    table.pytest_sessionfinish()
    command, machine, *lines = (tmp_path / "docs" / "seconds.tsv").read_text().splitlines()
    assert command == "# python -m pytest -m 'not slow'" and "3 tests, 20 s" in machine
    assert lines == ["seconds\ttests\tmodule", "16.5\t2\tb.py", "3.0\t1\ta.py"]
