"""What an engineer adds in an hour is added in one place: a copy of the package gets one of each, and uses it.

The places are those that docs/architecture.md names. A copy is another checkout: a line, a module or a file more, and
commands run from there. All additions are in one copy, used by one process, which imports once.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from capibara_assets_tests.executions.conftest import envelope, line

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow


STEPS = """
import json, sys
from capibara_assets.cli.main import cli
for step in json.loads(sys.argv[1]):
    if isinstance(step, str):
        exec(step, {})
    else:
        cli(step, standalone_mode=False)
    print(end="\\f", flush=True)
"""


Step = str | Sequence[object]
"""A program, or the words of a `capibara` command."""


@dataclass(frozen=True)
class Checkout:
    """A copy of the package and of its declarations, to which a test adds something."""

    folder: Path

    def add(self, file: str, text: str) -> None:
        """A new file."""
        path = self.folder / file
        assert not path.exists()
        path.write_text(text, "utf-8")

    def insert(self, file: str, *changes: tuple[str, str]) -> None:
        """Text before the first place of a file that matches a pattern; groups of the match may be used."""
        path = self.folder / file
        text = path.read_text("utf-8")
        for pattern, added in changes:
            match = re.search(pattern, text, re.MULTILINE)
            assert match is not None, f"{file} has no {pattern}"
            text = text[: match.start()] + match.expand(added) + text[match.start() :]
        path.write_text(text, "utf-8")

    def run(self, *steps: Step, **environment: str) -> list[str]:
        """What each step prints; all run in one process."""
        own = {
            "PYTHONPATH": os.pathsep.join((str(self.folder), str(ROOT))),
            "CAPIBARA_HOME": str(self.folder / "home"),
            "DAGSTER_HOME": "",
        }
        asked = json.dumps([step if isinstance(step, str) else [str(word) for word in step] for step in steps])
        done = subprocess.run(
            [sys.executable, "-c", STEPS, asked],
            cwd=self.folder,
            env={**os.environ, **own, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout.split("\f")[:-1]

    def tables(self, asset: str, name: str) -> Sequence[dict[str, Any]]:
        """Rows of a table that the copy's deployment published for an asset."""
        (file,) = (self.folder / "home" / "store" / "artifacts" / asset).rglob(f"{name}.parquet")
        return pl.read_parquet(file).to_dicts()


def copied(folder: Path) -> Checkout:
    """Times of files are kept, so that compiled modules are taken along; what no test changes is linked."""
    shutil.copytree(ROOT / "capibara_assets", folder / "capibara_assets")
    (folder / "resources").mkdir()
    for path in (ROOT / "resources").iterdir():
        if path.name in ("hardware", "recipes"):
            shutil.copytree(path, folder / "resources" / path.name)
        else:
            (folder / "resources" / path.name).symlink_to(path)
    for name in ("dagster.yaml", "workspace.yaml"):
        shutil.copyfile(ROOT / name, folder / name)
    return Checkout(folder)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkout, dict[str, list[str]]]:
    """A checkout to which all of ADDED was added, and what the steps of each have printed."""
    checkout = copied(tmp_path_factory.mktemp("together"))
    steps = {name: add(checkout) for name, add in ADDED.items()}
    folder = checkout.folder
    environment = {"NOTE": str(folder / "note"), "CAPIBARA_EXPERIENCE": str(folder / "experience")}
    printed = iter(checkout.run(*chain(*steps.values()), **environment))
    return checkout, {name: [next(printed) for _ in mine] for name, mine in steps.items()}


def add_domain(checkout: Checkout) -> list[Step]:
    checkout.insert("capibara_assets/domains.py", (r'^    API = "api"$', '    SHELL = "shell"\n'))
    program = (
        "from capibara_assets.definitions import defs\n"
        "assets = [one for one in defs.resolve_all_asset_specs() if one.partitions_def]\n"
        "print(len(assets), all('shell' in one.partitions_def.get_partition_keys() for one in assets))\n"
    )
    recipe = checkout.folder / "resources" / "recipes" / "experience.yaml"
    recipe.write_text(re.sub(r"^languages: .*$", "languages: [python, bash]", recipe.read_text(), flags=re.MULTILINE))
    logs = checkout.folder / "experience" / "e2b_logs"
    logs.mkdir(parents=True)
    cells = [("bash", "ls -l | wc -l"), ("bash", "grep -c word notes.txt"), ("python", "total = sum([1, 2])")]
    rows = [envelope(code, language=language, execution_id=f"e{n}") for n, (language, code) in enumerate(cells)]
    (logs / "log.jsonl").write_bytes(b"".join(line(row) + b"\n" for row in rows))
    assets = "ace_playbooks,consolidated_playbook,e2b_logs,e2b_executions,e2b_patterns,example_groups"
    return [program, ("run", "--domains", "shell", "--select", assets)]


def test_a_domain_is_a_member_of_the_enumeration(together: tuple[Checkout, dict[str, list[str]]]) -> None:
    """`domains.py`: named after a language, a partition of every asset, with that language's executions."""
    checkout, printed = together
    count, in_all = printed["domain"][0].split()
    assert int(count) >= 5 and in_all == "True"
    read = checkout.tables("e2b_executions", "executions")
    assert {(row["language"], tuple(row["domains"])) for row in read} == {("bash", ("shell",))} and len(read) == 2


AGENT_LOG = '''"""Logs of Otter: a JSON line for each command, with its exit code."""

from collections.abc import Iterator

from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader


def reads(document: LogDocument) -> bool:
    return any("otter" in line for line in document.lines)


def entries(document: LogDocument) -> Iterator[Entry]:
    yield from document.faults
    for line in document.lines:
        if line.get("skipped"):
            yield NotRun("skipped")
        elif isinstance(command := line.get("otter"), str):
            code = line.get("exit")
            yield AgentRun(str(line.get("swim")), "bash", command, None if code is None else code == 0, exit_code=code)


READER = Reader("otter", (b\'"otter"\',), reads, entries)
'''


def add_log_format(checkout: Checkout) -> list[Step]:
    checkout.add("capibara_assets/executions/formats/agents/tools/otter.py", AGENT_LOG)
    checkout.insert(
        "capibara_assets/executions/formats/agents/readers.py",
        (
            r"^from capibara_assets.executions.formats.agents.runs",
            "from capibara_assets.executions.formats.agents.tools import otter\n",
        ),
        (r"^\)\n\n\ndef find_reader", "    otter.READER,\n"),
    )
    rows = [{"otter": "pytest", "exit": 1, "swim": 7}, {"otter": "ls", "swim": 7}, {"otter": "rm", "skipped": True}]
    logs = checkout.folder / "logs"
    logs.mkdir()
    (logs / "today.txt").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"otter"\n')
    program = (
        "from datetime import UTC, datetime; from pathlib import Path\n"
        "from capibara_assets.executions.ingest.ingest import read_experience\n"
        "read = read_experience(Path('logs'), now=datetime.now(UTC))\n"
        "print(read.executions['outcome'].to_list(), read.executions['domains'].to_list())\n"
        "print(read.summary['known'], read.quarantine['reason'].to_list())\n"
    )
    return [program]


def test_a_format_of_agents_logs_is_a_module_and_a_line(together: tuple[Checkout, dict[str, list[str]]]) -> None:
    """`executions/formats/agents/`: read by `e2b_logs`, with what ran, what did not and what is damaged."""
    _, printed = together
    ran, rest = printed["log format"][0].splitlines()
    assert ran == "['error', 'unknown'] [['shell'], ['shell']]"  # of the domain that is added beside it
    assert rest == "{'agent_call:skipped': 1} ['invalid_json']"


STRATEGY = '''
class Newest(Declared):
    """One training, after which a note is written."""

    kind: Literal["newest"] = "newest"
    note: str


'''
TRAINER = """
import os
from pathlib import Path

from capibara_assets.training.loop.train import train_voter


def train_newest(run, strategy):
    folder = train_voter(run)
    Path(os.environ["NOTE"]).write_text(strategy.note)
    return folder
"""


def add_strategy(checkout: Checkout) -> list[Step]:
    checkout.add("capibara_assets/training/strategies/newest.py", TRAINER)
    checkout.insert(
        "capibara_assets/training/strategy.py",
        (r"^Strategy = Annotated\[", STRATEGY),
        (r"(?<=^Strategy = Annotated\[\n)    ", "    Newest |\n"),
        (r'^    "huggingface": ', '    "newest": "strategies.newest:train_newest",\n'),
    )
    recipe = yaml.safe_load((ROOT / "resources/recipes/nano_cpu.yaml").read_text())
    recipe["name"] = "newest"
    recipe["voters"][0]["strategy"] = {"kind": "newest", "note": "trained as declared"}
    recipe["training"] |= {"max_steps": 2, "evaluate_every": 2, "warmup": 0.5}
    recipe["data"] |= {"max_length": 64, "max_validation_examples": 4}
    checkout.add("resources/recipes/strategies/newest.yaml", yaml.safe_dump(recipe))
    words = ("lamp", "river", "copper", "anchor", "velvet", "marble")
    rows = [{"prompt": f"Say {a} and {b}.", "completion": f"{b}, {a}"} for a in words for b in words]
    (checkout.folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    train = ("train", "--recipe", "strategies/newest", "--data", "data.jsonl", "--output", "out")
    return [("run", "--help"), train]


def test_a_training_strategy_is_a_class_and_its_trainer(together: tuple[Checkout, dict[str, list[str]]]) -> None:
    """`training/strategy.py` names the class and its trainer; a recipe of `recipes/strategies` is a profile."""
    checkout, printed = together
    profiles, said = printed["strategy"]
    assert "newest" in profiles
    assert "verified: adapter_model.safetensors" in said
    assert (checkout.folder / "note").read_text() == "trained as declared"
    assert '"newest"' in (checkout.folder / "out" / "training_info.json").read_text()


ADVICE = """
from capibara_assets.playbooks.formats.parsed import RawBullet
from capibara_assets.playbooks.formats.toon import read_toon

FIRST = "advice, one a line:"


def looks_like_advice(text):
    return text.startswith(FIRST)


def read_advice(text):
    parsed = read_toon("(empty playbook)")
    for number, content in enumerate(text.splitlines()[1:], 2):
        parsed.add(RawBullet(f"advice-{number}", "general", content, line=number), content)
    return parsed
"""


PIECES_OF_ADVICE = ("Read the error before the code.", "Name the columns of an INSERT.")


def add_playbook_format(checkout: Checkout) -> list[Step]:
    checkout.add("capibara_assets/playbooks/formats/advice.py", ADVICE)
    checkout.insert(
        "capibara_assets/playbooks/formats/detection.py",
        (
            r"^from capibara_assets\.playbooks\.formats\.deltas import",
            "from capibara_assets.playbooks.formats.advice import looks_like_advice, read_advice\n",
        ),
        (
            r"^    if looks_like_toon\(text\):",
            '    if looks_like_advice(text):\n        return Contents("advice", "read", parsed=read_advice(text))\n',
        ),
    )
    playbooks = checkout.folder / "experience" / "playbooks"
    playbooks.mkdir(parents=True)
    (playbooks / "team.txt").write_text("\n".join(("advice, one a line:", *PIECES_OF_ADVICE)))
    return []  # the run of `add_domain` reads it


def test_a_playbook_format_is_a_module_and_a_line_in_detection(together: tuple[Checkout, dict[str, list[str]]]) -> None:
    """`playbooks/formats/detection.py` tells it by its content; its bullets are in `ace_playbooks`."""
    checkout, _ = together
    assert {row["content"] for row in checkout.tables("ace_playbooks", "bullets")} == set(PIECES_OF_ADVICE)


def add_hardware_target(checkout: Checkout) -> list[Step]:
    declared = yaml.safe_load((ROOT / "resources/hardware/cpu-laptop.yaml").read_text())
    declared |= {"name": "old-desktop", "description": "the machine under the desk"}
    declared["memory"] |= {"total_gib": 6, "usable_gib": 3}
    declared["price"] |= {"usd_per_hour": 0.25}
    checkout.add("resources/hardware/old-desktop.yaml", yaml.safe_dump(declared))
    arguments = ("plan", "--model", "capibara-nano", "--examples", 50, "--json", "--hardware")
    return [(*arguments, name) for name in ("old-desktop", "cpu-laptop")]


def test_a_hardware_target_is_a_file(together: tuple[Checkout, dict[str, list[str]]]) -> None:
    """`resources/hardware/NAME.yaml`: `capibara plan --hardware NAME` plans for it."""
    _, printed = together
    plan, usual = map(json.loads, printed["hardware target"])
    assert (plan["target"], plan["hardware"]) == ("old-desktop", "the machine under the desk")
    budget, larger = (one["plan"]["estimates"]["memory_budget_bytes"] for one in (plan, usual))
    assert budget == pytest.approx(larger * 3 / 4)


MERGE = '''
from dataclasses import replace

from capibara_assets.consensus.merging.combinations import linear


def total(stack, recipe):
    """The sum of the models; a method gets them in an order of its own."""
    return linear(stack, replace(recipe, weights=(1.0,) * len(stack.parts), normalize=False))
'''


MODELS = [np.random.default_rng(seed).random((40, 30), np.float32) for seed in range(2)]


def add_merge_method(checkout: Checkout) -> list[Step]:
    checkout.add("capibara_assets/consensus/merging/total.py", MERGE)
    checkout.insert(
        "capibara_assets/consensus/merging/methods.py",
        (r"^from capibara_assets", "from capibara_assets.consensus.merging.total import total\n"),
        (r'^( +)"linear": (\w+)\(linear,', r'\1"total": \2(total, "unused", (2, 2), {}),' "\n"),
    )
    for name, weights in zip("ab", MODELS, strict=True):
        folder = checkout.folder / name
        folder.mkdir()
        save_file({"layer.weight": weights}, folder / "model.safetensors", {"format": "pt"})
        (folder / "config.json").write_text('{"model_type": "llama"}')
    program = (
        "from capibara_assets.consensus.merging.checkpoint_merge import merge_checkpoints\n"
        "merge_checkpoints(['a', 'b'], 'total', 'merged-by-function')\n"
    )
    return [("merge", "total", "a", "b", "--out", "merged"), program]


def test_a_merge_method_is_an_entry_of_the_table(together: tuple[Checkout, dict[str, list[str]]]) -> None:
    """`consensus/merging/methods.py`: `merge_checkpoints` and `capibara merge` know it by its name."""
    checkout, _ = together
    for folder in ("merged", "merged-by-function"):
        (file,) = (checkout.folder / folder).glob("*.safetensors")
        np.testing.assert_allclose(load_file(file)["layer.weight"], sum(MODELS), rtol=1e-6)


MEDOID = '''
import numpy as np

from capibara_assets.consensus.aggregation import linear_rules


def medoid(cloud):
    """The voter with the least sum of squared distances to the others."""
    weights = np.zeros(cloud.n)
    weights[int(cloud.distances.sum(axis=1).argmin())] = 1.0
    return type(linear_rules.mean(cloud))(weights, {})
'''
AGGREGATE = """
import torch

from capibara_assets.consensus.aggregation.aggregate import aggregate
from capibara_assets.consensus.choose.combining import combine
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.modeling.adapters import LoraAdapter


def adapter(size):
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "bias": "none"}
    factors = {"A": torch.ones(1, 5), "B": size * torch.ones(6, 1)}
    return LoraAdapter(config, {f"base_model.model.m.lora_{name}.weight": value for name, value in factors.items()})


print(aggregate([[0.0], [1.0], [2.0], [90.0]], "medoid", f=1).vector[0])
adapters = [adapter(size) for size in (1.0, 1.1, 1.2, 50.0)]
print(combine(adapters, ConsensusRecipe(rule="medoid").rule, f=1).weights)
"""


def add_aggregation_rule(checkout: Checkout) -> list[Step]:
    checkout.add("capibara_assets/consensus/aggregation/medoid.py", MEDOID)
    checkout.insert(
        "capibara_assets/consensus/aggregation/aggregate.py",
        (r"^from capibara_assets", "from capibara_assets.consensus.aggregation.medoid import medoid\n"),
        (r'^    "mean": ', '    "medoid": medoid,\n'),
    )
    return [AGGREGATE]


def test_an_aggregation_rule_is_an_entry_of_the_table(together: tuple[Checkout, dict[str, list[str]]]) -> None:
    """`consensus/aggregation/aggregate.py`: a recipe may name it, and the consensus combines adapters by it."""
    _, printed = together
    vector, weights = printed["aggregation rule"][0].splitlines()
    assert (vector, weights) == ("2.0", "(0.0, 0.0, 1.0, 0.0)")


ADDED = {
    "hardware target": add_hardware_target,
    "log format": add_log_format,
    "domain": add_domain,
    "strategy": add_strategy,
    "playbook format": add_playbook_format,
    "merge method": add_merge_method,
    "aggregation rule": add_aggregation_rule,
}
