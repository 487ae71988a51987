"""Resources: the right file, validated; what is wrong is named with where it is."""

import shutil
from pathlib import Path
from typing import Any

import pydantic
import pytest

from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.evaluation.decision_rule import DecisionRule
from capibara_assets.evaluation.recipe import EvaluationRecipe
from capibara_assets.executions.recipe import ExperienceRecipe
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.resources import BaseModel, Experience, Hardware, Recipes, Store
from capibara_assets.training.recipe import TrainingRecipe

SHIPPED: dict[str, type[pydantic.BaseModel]] = {
    "experience": ExperienceRecipe,
    "dataset": DatasetRecipe,
    "planning": PlanningRecipe,
    "training": TrainingRecipe,
    "consensus": ConsensusRecipe,
    "evaluation": EvaluationRecipe,
    "decision": DecisionRule,
}
TARGETS = sorted(path.stem for path in (resources_root() / "hardware").glob("*.yaml"))


def recipes(folder: Path, profile: str = "demo", **options: Any) -> Recipes:
    return Recipes(folder=str(folder), profile=profile, **options)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


# --- recipes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["demo", "full"])
@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_the_shipped_recipes_load(name: str, profile: str):
    loaded = Recipes(profile=profile).load(name, SHIPPED[name])
    assert isinstance(loaded, SHIPPED[name]) and len(Recipes(profile=profile).digest(name)) == 64


def test_a_profiles_own_file_wins(tmp_path: Path):
    write(tmp_path, "decision.yaml", "min_groups: 7")
    assert recipes(tmp_path).load("decision", DecisionRule).min_groups == 7
    own = write(tmp_path, "decision-demo.yaml", "min_groups: 8")
    assert recipes(tmp_path).load("decision", DecisionRule).min_groups == 8
    assert recipes(tmp_path).file("decision") == own
    assert recipes(tmp_path, "full").load("decision", DecisionRule).min_groups == 7


def test_overrides_replace_single_values(tmp_path: Path):
    write(tmp_path, "decision.yaml", "min_groups: 7\nconfidence: 0.9")
    rule = recipes(tmp_path, overrides={"decision": {"confidence": 0.8}}).load("decision", DecisionRule)
    assert (rule.min_groups, rule.confidence) == (7, 0.8)


def test_an_empty_file_means_the_defaults(tmp_path: Path):
    write(tmp_path, "decision.yaml", "# nothing chosen\n")
    assert recipes(tmp_path).load("decision", DecisionRule) == DecisionRule()
    assert recipes(tmp_path, overrides={"decision": {"seed": 3}}).load("decision", DecisionRule).seed == 3


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("min_group: 7", "min_group"),
        ("confidence: 1.5", "confidence"),
        ("confidence: much", "confidence"),
        ("default: {metric: accuracy}", "metric"),
        ("confidence: [0.9", "decision.yaml"),
        ("- confidence\n- 0.9", "mapping"),
        ("just words", "mapping"),
    ],
    ids=["unknown key", "out of range", "wrong type", "unknown choice", "not YAML", "a list", "a string"],
)
def test_a_wrong_recipe_names_the_file_and_what_is_wrong(tmp_path: Path, text: str, named: str):
    path = write(tmp_path, "decision.yaml", text)
    with pytest.raises(InputError) as caught:
        recipes(tmp_path).load("decision", DecisionRule)
    assert str(path) in str(caught.value) and named in str(caught.value)


@pytest.mark.parametrize("text", ["confidence: [0.9", "- confidence"])
def test_the_digest_of_an_unreadable_recipe_says_so_too(tmp_path: Path, text: str):
    path = write(tmp_path, "decision.yaml", text)
    with pytest.raises(InputError, match=str(path)):
        recipes(tmp_path).digest("decision")


def test_a_missing_recipe_names_profile_and_folder(tmp_path: Path):
    with pytest.raises(InputError, match=rf"no recipe 'decision' for profile 'full' in {tmp_path}"):
        recipes(tmp_path, "full").load("decision", DecisionRule)


def test_the_digest_is_of_what_counts(tmp_path: Path):
    path = write(tmp_path, "decision.yaml", "confidence: 0.9\nseed: 1\n")
    digest = recipes(tmp_path).digest("decision")
    path.write_text("# a remark\nseed:   1\nconfidence: 0.90\n")
    assert recipes(tmp_path).digest("decision") == digest
    path.write_text("seed: 2\nconfidence: 0.9\n")
    changed = recipes(tmp_path).digest("decision")
    overridden = recipes(tmp_path, overrides={"decision": {"seed": 3}}).digest("decision")
    elsewhere = recipes(tmp_path, overrides={"training": {"seed": 3}}).digest("decision")
    assert len({digest, changed, overridden}) == 3 and elsewhere == changed


def test_a_date_in_a_recipe(tmp_path: Path):
    """YAML has dates of its own; the comment in the shipped file offers one."""
    path = write(tmp_path, "experience.yaml", "as_of: 2026-10-30T00:00:00Z")
    loaded = recipes(tmp_path).load("experience", ExperienceRecipe)
    assert loaded.as_of is not None and loaded.as_of.isoformat() == "2026-10-30T00:00:00+00:00"
    first = recipes(tmp_path).digest("experience")
    path.write_text("as_of: 2026-10-31T00:00:00Z")
    assert recipes(tmp_path).digest("experience") != first


# --- places ----------------------------------------------------------------------------------------------------------


def test_a_missing_experience_folder_is_named(tmp_path: Path):
    with pytest.raises(InputError, match=rf"experience folder {tmp_path}/nowhere does not exist"):
        _ = Experience(folder=str(tmp_path / "nowhere")).path
    file = write(tmp_path, "file.jsonl", "{}")
    with pytest.raises(InputError, match=r"file\.jsonl is no folder: give a folder of"):
        _ = Experience(folder=str(file)).path
    assert Experience(folder=str(tmp_path)).path == tmp_path


def test_an_experience_folder_under_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "logs").mkdir()
    assert Experience(folder="~/logs").path == tmp_path / "logs"


def test_a_store_keeps_results_and_work_apart(tmp_path: Path):
    store = Store(root=str(tmp_path / "store"), work=str(tmp_path / "work")).open()
    artifact = store.publish("facts", None, documents={"x": 1})
    assert Path(artifact.path.path).is_relative_to(tmp_path / "store")
    assert store.work_dir("facts", None, "0" * 64).is_relative_to(tmp_path / "work")


# --- hardware --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
def test_every_declared_target_is_one(name: str):
    assert Hardware(name=name).target.name == name


def test_an_unknown_target_lists_those_there_are():
    with pytest.raises(InputError) as caught:
        _ = Hardware(name="abacus-1").target
    assert "no hardware target 'abacus-1'" in str(caught.value)
    assert all(name in str(caught.value) for name in TARGETS) and "cpu-laptop" in TARGETS


# --- the base model --------------------------------------------------------------------------------------------------


@pytest.fixture
def model(nano: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(nano, tmp_path / "model"))


def test_the_shipped_base_model_is_one(nano: Path):
    assert BaseModel(location=str(nano)).path == nano


def damage(model: Path, how: str) -> None:
    weights, config = model / "model.safetensors", model / "config.json"
    match how:
        case "no weights":
            weights.unlink()
        case "weights cut":
            weights.write_bytes(weights.read_bytes()[:-1])
        case "weights garbage":
            weights.write_bytes(b"\xff" * 4096)
        case "weights empty":
            weights.write_bytes(b"")
        case "no config":
            config.unlink()
        case "config garbage":
            config.write_text("{")
        case "config a list":
            config.write_text("[]")
        case "another architecture":
            config.write_text('{"architectures": ["BertForMaskedLM"]}')
        case "no tokenizer":
            (model / "tokenizer.json").unlink()
        case "weights in pickle":
            weights.rename(model / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("no weights", "no weights"),
        ("weights cut", "model.safetensors is damaged"),
        ("weights garbage", "model.safetensors is damaged"),
        ("weights empty", "model.safetensors is damaged"),
        ("no config", "config.json is missing"),
        ("config garbage", "config.json is not JSON"),
        ("config a list", "expected a JSON object"),
        ("another architecture", "not a causal language model"),
        ("no tokenizer", "no tokenizer"),
        ("weights in pickle", "no weights"),
    ],
)
def test_a_damaged_base_model_is_refused_with_its_place(model: Path, how: str, named: str):
    damage(model, how)
    with pytest.raises(InputError) as caught:
        _ = BaseModel(location=str(model)).path
    assert named in str(caught.value) and str(model) in str(caught.value)


def test_a_missing_base_model_is_named(tmp_path: Path):
    with pytest.raises(InputError, match="nowhere"):
        _ = BaseModel(location=str(tmp_path / "nowhere")).path
