"""`python -m benchmarks`: every bench is listed, starts, takes --quick, and says so in its JSON."""

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from benchmarks.output import print_result
from benchmarks.registry import BENCHES, STAGES, with_quick


@pytest.fixture
def bench() -> click.Command:
    @click.command("one")
    @click.option("--size", default=1000)
    @click.option("--times", "repeats", default=5)
    @click.option("--json", "as_json", is_flag=True)
    def one(size: int, repeats: int, as_json: bool) -> None:
        print_result({"size": size, "repeats": repeats}, as_json)

    return with_quick(one, {"size": 10, "repeats": 1})


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ([], {"size": 1000, "repeats": 5}),
        (["--quick"], {"size": 10, "repeats": 1, "rough": True}),
        (["--quick", "--times", "5"], {"size": 10, "repeats": 5, "rough": True}),
    ],
)
def test_quick_sets_what_is_not_given(bench: click.Command, arguments: list[str], printed: dict[str, object]) -> None:
    done = CliRunner().invoke(bench, [*arguments, "--json"], catch_exceptions=False)
    assert json.loads(done.stdout) == printed


def test_a_bench_with_a_quick_of_its_own_is_told() -> None:
    @click.command("own")
    @click.option("--quick", is_flag=True, help="Fewer.")
    @click.option("--size", default=1000)
    def own(quick: bool, size: int) -> None:
        print_result({"told": quick, "size": size}, True)

    command = with_quick(own, {"size": 10})
    done = CliRunner().invoke(command, ["--quick"], catch_exceptions=False)
    assert json.loads(done.stdout) == {"told": True, "size": 10, "rough": True}
    assert [param.help for param in command.params if param.name == "quick"] == ["Fewer."]


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_is_as_it_is_listed(name: str) -> None:
    """Its line is the first paragraph of its help; what --quick sets are options of it, of their own types."""
    bench = BENCHES[name]
    command = bench.load()
    assert bench.stage in STAGES
    assert " ".join((command.help or "").split("\n\n")[0].split()) == bench.line
    options = {param.name: param for param in command.params}
    assert options["quick"].is_flag and options["as_json"].is_flag  # type: ignore[attr-defined]
    context = click.Context(command)
    for option, value in bench.quick.items():
        assert options[option].type_cast_value(context, value) == value


def test_the_list_names_every_bench_and_imports_none() -> None:
    code = "import sys\nfrom benchmarks.command import main\ntry: main()\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, "--list"], capture_output=True, text=True, check=True)
    *lines, modules = done.stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(STAGES)
    listed = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if line.startswith(" ")}
    assert listed == {name: bench.line for name, bench in BENCHES.items()}
    loaded = {module for module in modules.split() if module.startswith("benchmarks.")}
    assert loaded == {"benchmarks.command", "benchmarks.registry", "benchmarks.output", "benchmarks.peers"}


@pytest.mark.parametrize(
    ("module", "arguments", "code", "said"),
    [
        ("capibara_assets.cli", ["bench", "load"], 2, "capibara: benches run as `python -m benchmarks NAME`"),
        ("benchmarks", ["plan", "--rows", "nowhere.csv"], 2, "benchmarks: no file nowhere.csv"),
        ("benchmarks", ["nonsense"], 2, "No such command 'nonsense'"),
    ],
)
def test_what_cannot_run_says_so_in_a_sentence(module: str, arguments: list[str], code: int, said: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True)
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr
