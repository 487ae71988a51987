"""Profiles of strategies have a short form and a full one: in the full one the epochs that are declared happen."""

import json
import math
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from capibara_assets.cli.graph.run import PROFILES
from capibara_assets.cli.training.train import train
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets_tests.home import command
from capibara_assets_tests.modeling.tiny import save_tiny

TWO_FORMS = ("convexity", "hierarchical", "huggingface", "incremental_soup", "integrated")
_VOTER = re.compile(r"^(\S+) +\w+(?: in \d+ trainings)?: (\d+) examples x ([\d.]+) epochs = ([\d,]+) optimizer", re.M)
_VERBS = ("adds", "counts", "prints", "returns", "sorts", "stores")
_THINGS = ("dates", "files", "names", "prices", "rows", "scores", "words")


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred and fifty short chats: several times what the short forms read."""
    file = tmp_path_factory.mktemp("chats") / "chats.jsonl"
    with file.open("w") as lines:
        for number in range(150):
            verb, thing = _VERBS[number % len(_VERBS)], _THINGS[number % len(_THINGS)]
            answer = f"def {verb}_{thing}_{number}({thing}):\n" + f"    {thing} = {verb}({thing}, {number})\n" * 3
            messages = [
                {"role": "user", "content": f"Write function number {number} that {verb} {thing}."},
                {"role": "assistant", "content": answer + f"    return {thing}\n"},
            ]
            lines.write(json.dumps({"messages": messages}) + "\n")
    return file


def planned(recipe: str, chats: Path, folder: Path) -> dict[str, tuple[int, float, int]]:
    """Voter -> examples, passes over them, optimizer steps: what `capibara train --plan` prints."""
    options = ("--recipe", f"strategies/{recipe}", "--model", "capibara-nano", "--data", str(chats))
    done = CliRunner().invoke(train, [*options, "--output", str(folder / recipe), "--plan"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return {
        name: (int(examples), float(epochs), int(steps.replace(",", "")))
        for name, examples, epochs, steps in _VOTER.findall(done.output)
    }


@pytest.mark.parametrize("name", ["integrated", *(pytest.param(n, marks=pytest.mark.extended) for n in TWO_FORMS[:-1])])
def test_the_full_form_trains_every_declared_epoch(name: str, chats: Path, tmp_path: Path) -> None:
    full, short = planned(f"{name}-full", chats, tmp_path), planned(name, chats, tmp_path)
    assert len(full) == len(short) == 4
    for voter, (examples, epochs, steps) in full.items():
        assert steps == math.ceil(examples / 4) * epochs
        assert short[voter][:2] == (examples, epochs)
        assert short[voter][2] < steps  # cut by its tokens


def test_both_forms_have_the_same_voters_and_are_profiles() -> None:
    for name in TWO_FORMS:
        full, short = (shipped_recipe(f"strategies/{one}", TrainingRecipe) for one in (f"{name}-full", name))
        assert full.voters == short.voters
        assert {name, f"{name}-full"} <= set(PROFILES)
        assert (full.training.max_tokens, full.training.max_steps) == (None, None)
        assert short.training.max_tokens is not None


@pytest.mark.extended
def test_a_full_training_makes_the_steps_of_its_epochs(chats: Path, nano: Path, tmp_path: Path) -> None:
    """In real processes, on a base of a few thousand weights."""
    base = save_tiny(tmp_path / "base", tokenizer_of=nano, positions=1024)
    some = tmp_path / "some.jsonl"
    some.write_text("".join(chats.read_text().splitlines(keepends=True)[:40]))
    options = ("--recipe", "strategies/integrated-full", "--model", str(base), "--data", str(some))
    command({}, "train", *options, "--output", str(tmp_path / "out"))
    voters = [json.loads(file.read_text()) for file in (tmp_path / "out" / "voters").glob("*/training_info.json")]
    assert {one["strategy"] for one in voters} == {"hierarchical", "convexity", "soup"}
    for one in voters:
        passes = 5 if one["strategy"] == "hierarchical" else 6  # no hard examples: that level is left out
        assert one["steps"] == math.ceil(one["examples"] / 4) * passes
