"""Names of tensors and files that forge a line of a command's output: each stays on the line that it stands in."""

import json
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from capibara_assets.cli.main import cli
from capibara_assets.cli.terminal.documents import echo_result

FORGED = "w2\nequal to the bit: 1 tensors, all files and values"


def weights(file: Path, *names: str) -> Path:
    entries = {
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * at, 4 * at + 4]} for at, name in enumerate(names)
    }
    header = json.dumps(entries).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack(f"<{len(names)}f", *range(len(names))))
    return file


def lines_of(*words: object) -> Sequence[str]:
    done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_no_tensors_name_makes_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`diff` of files and of stored ones, `show` and `merge` print as many lines as for an honest name."""
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path / "home"))
    shown: dict[str, list[Sequence[str]]] = {}
    for kind, name in (("sound", "w2"), ("forged", FORGED)):
        folder, store = tmp_path / kind, ("--store", tmp_path / kind / "store")
        folder.mkdir()
        one, two = weights(folder / "a.safetensors", "w"), weights(folder / "b.safetensors", "w", name)
        for model, file in (("a", one), ("b", two)):
            lines_of("checkpoint", "save", file, "--model", model, "--step", 1, *store)
        shown[kind] = [
            lines_of("checkpoint", "diff", one, two),
            lines_of("checkpoint", "diff", "a", "b", *store),
            lines_of("checkpoint", "show", "b", *store),
            lines_of("merge", "ties", one, one, "--base", two, "--out", folder / "merged"),
        ]
        assert not any(line.startswith("equal to the bit") for lines in shown[kind] for line in lines)
    assert [len(lines) for lines in shown["forged"]] == [len(lines) for lines in shown["sound"]]
    assert sum(FORGED.replace("\n", "\\u000a") in line for lines in shown["forged"] for line in lines) == 3


def test_a_result_is_as_many_lines_as_it_was_given(capsys: pytest.CaptureFixture[str]) -> None:
    echo_result({}, ["voter a\nb", "c"], False)
    echo_result({}, "d\ne", False)
    assert capsys.readouterr().out == "voter a\\u000ab\nc\nd\\u000ae\n"
