"""Troubleshooting quotes what the code says: every message in it is in the package, and every setting in a recipe."""

import re
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import yaml

import capibara_assets
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets_tests.test_docs import ROOT, anchors

PAGE = ROOT / "docs" / "troubleshooting.md"
TEXT = PAGE.read_text("utf-8")
QUOTED = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
SYMPTOMS = (
    "consensus", "out of memory", "tpu not found", "device_map with deepspeed", "accumulation", "infiniband",
    "no checkpoints", "slow", "queued", "does not download", "cpu and gpu",
)  # fmt: skip
BETWEEN = re.compile(r"…|[;:] |\s{2,}|^(?:pass|warn|fail)\s")
"""What stands between the parts of a quotation: values that differ, a finding's status, its next step."""


@cache
def said() -> str:
    """Every text in the package's code, compiled as it is; where an f-string has values a line ends, as does a text.

    Bytecode lies beside the sources already: to parse a thousand of them takes seconds.
    """
    texts, waiting = list[str](), list[object]()
    for path in Path(capibara_assets.__file__).parent.rglob("*.py"):
        waiting.append(SourceFileLoader(path.stem, str(path)).get_code(path.stem))
    while waiting:
        match waiting.pop():
            case CodeType(co_consts=constants):
                waiting += constants
            case tuple(constants):
                waiting += constants
            case str(text):
                texts.append(text)
    return "\n".join(texts).replace("{{", "{").replace("}}", "}")


def unsaid(quotation: str) -> list[str]:
    """Parts of a quotation that no text in the package has."""
    parts = (part.strip(" .:,()") for part in BETWEEN.split(quotation))
    return [part for part in parts if part and part not in said()]


def test_every_message_is_one_of_the_code():
    lines = [line for block in QUOTED.findall(TEXT) for line in block.splitlines() if line]
    assert len(lines) > 30
    wrong = {line: parts for line in lines if (parts := unsaid(line))}
    assert not wrong


def test_a_message_that_nobody_says_is_told():
    assert unsaid("no consensus: … of … voters answered, … needed") == []
    assert unsaid("no consensus: … of … voters shouted; Missing") == ["voters shouted"]


def test_every_key_is_one_of_a_recipe():
    """Of a training (`section.key`), or of the vote."""
    sections = "training", "hardware", "data", "model", "checkpoint"
    keys = {(part, key) for part in sections for key in TrainingRecipe.model_fields[part].annotation.model_fields}
    named = set(re.findall(rf"\b({'|'.join(sections)})\.(?!md\b)([a-z_]+)\b(?!\(|\.)", TEXT))
    assert len(named) > 8 and named <= keys
    assert {"consensus_timeout", "max_retries", "examples_per_shard"} <= ConsensusRecipe.model_fields.keys()
    assert yaml.safe_load((ROOT / "resources/recipes/experience.yaml").read_text())["time_range_days"] == 30


def test_every_symptom_has_its_section_with_a_command():
    sections = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
    for symptom in SYMPTOMS:
        found = [section for section in sections if symptom in section.splitlines()[0].lower()]
        assert len(found) == 1 and re.search(r"^```sh\n", found[0], re.MULTILINE), symptom
    linked = set(re.findall(r"\(#([\w-]+)\)", TEXT))
    assert {anchor for anchor in anchors(PAGE) if anchor != "troubleshooting"} <= linked, "each is in the table"
