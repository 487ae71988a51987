"""The keys that benches print are read by others: those of `keys.json` stay.

`printed` holds what a bench printed at its top, `in_code` the keys in the source of each module of a bench: it stands
for the benches that need peers or hours. A key that is added is welcome; one that is gone or renamed is a break.
"""

import ast
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import benchmarks
from benchmarks.command import benches

KEYS = json.loads(Path(__file__).with_name("keys.json").read_text("utf-8"))
ALWAYS = ("recorder", "plan-xla")  # seconds each


def keys_in(path: Path) -> set[str]:
    """Every string that is a key of a dict display in a file."""
    displays = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Dict))
    keys = (key for display in displays for key in display.keys)
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


@pytest.mark.parametrize("file", KEYS["in_code"])
def test_no_key_is_gone_from_the_code(file: str) -> None:
    folder = Path(benchmarks.__file__).parent
    assert set(KEYS["in_code"][file]) <= keys_in(folder / file)


@pytest.mark.parametrize(
    "bench",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.extended) for name in KEYS["printed"]],
)
def test_a_quick_run_prints_the_keys_of_a_whole_one(
    bench: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path))
    done = CliRunner().invoke(benches, [*bench.split(), "--quick", "--json"], catch_exceptions=False)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    assert result["rough"] is True
    assert set(KEYS["printed"][bench]) <= set(result)
