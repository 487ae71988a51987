"""Imported examples: groups and splits that never leak or move, secrets that do not enter, files that go out again."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capibara_assets.datasets.checks import example_problems, leakage, secret_problems
from capibara_assets.datasets.examples import build_dataset
from capibara_assets.datasets.groups import assign_groups
from capibara_assets.datasets.imported.formats import ParsedRecord
from capibara_assets.datasets.imported.join import (
    EQUAL,
    TENANT,
    Imported,
    Stated,
    add_imported,
    incoming,
    new_files,
    place_incoming,
    too_close,
    without_files,
)
from capibara_assets.datasets.imported.read import ExampleFile, FileRow, read_examples
from capibara_assets.datasets.imported.splits import BRIDGE
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import SPLITS, Example, Split
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.storage.records import frame_digest, problems, table
from capibara_assets_tests.datasets.conftest import WORDS, evidence_of, fleet, no_repairs, problem

PYTHON = Domain.PYTHON
Pair = tuple[str, str]


@pytest.fixture(scope="module")
def recipe() -> DatasetRecipe:
    return shipped_recipe("dataset", DatasetRecipe)


def pair_of(number: int) -> Pair:
    """A question and an answer unlike those of any other number."""
    rng = random.Random(number)
    words = [f"{rng.choice(WORDS)}{rng.randrange(10_000)}" for _ in range(160)]
    return f"Question {number}: how do {' '.join(words[:60])} relate?", f"They {' '.join(words[60:])}."


class Files:
    """Files of prompt and completion, made and read."""

    def __init__(self, folder: Path, recipe: DatasetRecipe) -> None:
        self.folder, self.recipe = folder, recipe

    def write(self, name: str, pairs: Sequence[Pair], **more: Any) -> ExampleFile:
        lines = [json.dumps({"prompt": prompt, "completion": answer, **more}) for prompt, answer in pairs]
        (self.folder / name).write_text("\n".join(lines))
        return read_examples(self.folder / name)

    def add(
        self,
        pairs: Sequence[Pair],
        split: Split | None = None,
        *,
        name: str = "a.jsonl",
        before: Imported | None = None,
        others: Sequence[pl.DataFrame] = (),
        also: Sequence[str] = (),
        **stated: Any,
    ) -> Imported:
        new = incoming(PYTHON, self.write(name, pairs), split, Stated(**stated), also)
        return place_incoming(PYTHON, before or Imported.empty(), others, new, self.recipe)


@pytest.fixture
def files(tmp_path: Path, recipe: DatasetRecipe) -> Files:
    return Files(tmp_path, recipe)


def fates(imported: Imported) -> list[str | None]:
    """Why each line is left out, in order of file and line."""
    return imported.lines.sort("file", "line")["reason_left_out"].to_list()


def split_of(imported: Imported) -> dict[str, str]:
    """Question → split."""
    rows = imported.examples.select("messages", "split").iter_rows()
    return {json.loads(messages)[0]["content"]: split for messages, split in rows}


# --- alone -----------------------------------------------------------------------------------------------------------


def test_what_an_imported_example_is(files: Files):
    imported = files.add([pair_of(1)], licence="MIT", source="ours", tenant="acme")
    (row,) = imported.examples.to_dicts()
    assert json.loads(row["messages"])[1] == {"role": "assistant", "content": pair_of(1)[1]}
    expected = {
        "kind": "chat",
        "provenance": "imported",
        "verified": "unverified",
        "execution_ids": [],
        "sandbox_ids": [],
        "licence": "MIT",
        "source": "ours",
        "tenants": ["acme"],
        "source_places": ["a.jsonl:1"],
        "weight": 1.0,
    }
    assert {key: row[key] for key in expected} == expected
    assert not problems(Example, imported.examples) and not example_problems(PYTHON, imported.examples)


@pytest.mark.parametrize("count", [200, pytest.param(600, marks=pytest.mark.extended)])
def test_shares_follow_the_recipe_and_groups_do_not_straddle(files: Files, count: int):
    imported = files.add([pair_of(number) for number in range(count)])
    shares = dict(imported.examples["split"].value_counts(normalize=True).iter_rows())
    assert shares["train"] == pytest.approx(0.8, abs=0.05)
    assert shares["validation"] == pytest.approx(0.1, abs=0.04) and shares["test"] == pytest.approx(0.1, abs=0.04)
    assert imported.examples["group_id"].n_unique() == count and not leakage({PYTHON: imported.examples})


def test_near_and_structural_ones_share_group_and_split(files: Files):
    code = problem(3)
    renamed = code.replace("solve_", "compute_")
    question, answer = pair_of(5)
    imported = files.add(
        [
            ("Write the first thing, please.", f"Here it is:\n```python\n{code}\n```"),
            ("I need something else entirely today.", renamed),
            (question, answer),
            (question, "Another answer, of other words."),
            (f"{question} Really?", answer),
        ]
    )
    groups = imported.examples.sort(pl.col("source_places").list.first())["group_id"].to_list()
    assert groups[0] == groups[1] != groups[2] and groups[2] == groups[3] == groups[4]
    assert not leakage({PYTHON: imported.examples})


def test_equal_ones_are_one_example_with_their_number_as_weight(files: Files):
    question, answer = pair_of(1)
    imported = files.add([(question, answer), (f" {question.upper()}", answer), (question, answer)])
    (row,) = imported.examples.to_dicts()
    assert row["weight"] == pytest.approx(1 + 1.098612) and len(row["source_places"]) == 3
    assert fates(imported) == [None] * 3


def test_a_group_that_would_drown_a_held_out_split_trains(files: Files):
    question = "The same long question, which has many answers?"
    imported = files.add(
        [(question, pair_of(number)[1]) for number in range(50)] + [pair_of(n) for n in range(50, 100)]
    )
    assert split_of(imported)[question] == "train"


# --- splits that are asked for ---------------------------------------------------------------------------------------


def test_named_splits_are_kept_and_training_gives_way(files: Files, recipe: DatasetRecipe):
    train = files.write("train.jsonl", [pair_of(n) for n in range(6)])
    near = (pair_of(2)[0], pair_of(2)[1] + " Indeed.")
    val = files.write("val.jsonl", [pair_of(0), near, pair_of(10)])
    new = [*incoming(PYTHON, train, "train"), *incoming(PYTHON, val, "validation")]
    imported = place_incoming(PYTHON, Imported.empty(), [], new, recipe)
    assert fates(imported) == [
        *(too_close("validation"), None, too_close("validation"), None, None, None),
        *(None, None, None),
    ]
    assert dict(imported.examples["split"].value_counts().iter_rows()) == {"train": 4, "validation": 3}
    again = place_incoming(PYTHON, Imported.empty(), [], list(reversed(new)), recipe)
    assert again.examples.equals(imported.examples) and again.lines.equals(imported.lines)


def test_an_unnamed_one_goes_where_its_likes_are_or_nowhere(files: Files, recipe: DatasetRecipe):
    """One that resembles two examples of different splits is left out; of one, it joins that split."""
    (q1, a1), (q2, a2), code = pair_of(1), pair_of(2), f"```python\n{problem(7)}\n```"
    new = [
        *incoming(PYTHON, files.write("train.jsonl", [(q1, a1)]), "train"),
        *incoming(PYTHON, files.write("test.jsonl", [(q2, a2)]), "test"),
        *incoming(PYTHON, files.write("x.jsonl", [(q2, "Of quite other words."), (q1, code)]), None),
        *incoming(PYTHON, files.write("y.jsonl", [(q2, f"As code:\n{code}")]), None),
    ]
    imported = place_incoming(PYTHON, Imported.empty(), [], new, recipe)
    lines = {(line["file"], line["line"]): line["reason_left_out"] for line in imported.lines.iter_rows(named=True)}
    # x:2 (a question of train) and y:1 (a question of test) hold the same code: one of them may stay
    assert lines == {
        ("train.jsonl", 1): None,
        ("test.jsonl", 1): None,
        ("x.jsonl", 1): None,
        ("x.jsonl", 2): BRIDGE,
        ("y.jsonl", 1): None,
    }
    assert not leakage({PYTHON: imported.examples})
    assert dict(imported.examples["split"].value_counts().iter_rows()) == {"train": 1, "test": 3}


def test_planted_near_duplicates_never_straddle(files: Files, recipe: DatasetRecipe):
    """100 questions trained on, each changed in a word or two for validation: none is in both."""

    def changed(number: int) -> Pair:
        question, answer = pair_of(number)
        return question.replace(" relate?", " really relate?"), answer.replace("They ", "These ")

    new = [
        *incoming(PYTHON, files.write("train.jsonl", [pair_of(n) for n in range(150)]), "train"),
        *incoming(PYTHON, files.write("val.jsonl", [changed(n) for n in range(100)]), "validation"),
    ]
    imported = place_incoming(PYTHON, Imported.empty(), [], new, recipe)
    trained = {question for question, split in split_of(imported).items() if split == "train"}
    # at their similarity (0.85) LSH misses one pair in fifty
    assert len(trained & {pair_of(n)[0] for n in range(100)}) <= 4
    assert {pair_of(n)[0] for n in range(100, 150)} <= trained


@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 5),
            st.integers(0, 5),
            st.integers(0, 3),
            st.sampled_from([*SPLITS, None]),
        ),
        max_size=14,
    ),
    seed=st.randoms(use_true_random=False),
)
@settings(max_examples=settings.default.max_examples // 3)
def test_no_split_is_shared_whatever_comes_in_whatever_order(
    recipe: DatasetRecipe, rows: list[tuple[int, int, int, Split | None]], seed: random.Random
):
    """Questions, answers and code from small pools, so that links and conflicts abound: never a leak, any order."""
    new = []
    for line, (question, answer, code, split) in enumerate(rows, 1):
        said = f"{pair_of(answer)[1]}\n```python\n{problem(code)}\n```"
        messages = [{"role": "user", "content": pair_of(question)[0]}, {"role": "assistant", "content": said}]
        parsed = ParsedRecord(messages, "messages", None, None, None)
        file = ExampleFile(Path(f"{split}.jsonl"), f"{split}", rows=[FileRow(line, parsed)])
        new += incoming(PYTHON, file, split)
    imported = place_incoming(PYTHON, Imported.empty(), [], new, recipe)
    assert leakage({PYTHON: imported.examples}, recipe.near_duplicates) == []
    questions: dict[str, set[str]] = {}
    for messages, split in imported.examples.select("messages", "split").iter_rows():
        for part in (json.loads(messages)[0]["content"], json.loads(messages)[1]["content"].partition("```")[2]):
            questions.setdefault(part, set()).add(split)
    assert all(len(splits) == 1 for splits in questions.values())
    assert imported.lines.height == len(rows)
    seed.shuffle(new)
    again = place_incoming(PYTHON, Imported.empty(), [], new, recipe)
    assert again.examples.equals(imported.examples) and again.lines.equals(imported.lines)
    for position in (1, 3)[: len(new) // 2]:  # as it grows: what is there never moves
        before = place_incoming(PYTHON, Imported.empty(), [], new[:position], recipe)
        after = place_incoming(PYTHON, before, [], new[position:], recipe)
        kept = before.examples.select("example_id", "group_id", "split")
        assert set(kept.iter_rows()) <= set(after.examples.select("example_id", "group_id", "split").iter_rows())
        assert leakage({PYTHON: after.examples}, recipe.near_duplicates) == []


# --- as data grows ---------------------------------------------------------------------------------------------------


def test_another_file_moves_nothing(files: Files):
    first = files.add([pair_of(n) for n in range(50)])
    second = files.add([pair_of(n) for n in range(25, 100)], name="b.jsonl", before=first)
    before = {row[0]: row[1:] for row in first.examples.select("example_id", "group_id", "split").iter_rows()}
    after = {row[0]: row[1:] for row in second.examples.select("example_id", "group_id", "split").iter_rows()}
    assert before.items() <= after.items() and len(after) == 100
    assert dict(second.examples["weight"].round(3).value_counts().iter_rows()) == {1.0: 75, 1.693: 25}


def test_a_new_one_joins_the_split_of_what_it_resembles_or_is_left_out(files: Files):
    first = files.add([pair_of(n) for n in range(30)])
    splits = split_of(first)
    assert set(splits.values()) == set(SPLITS)
    new = [(pair_of(n)[0], pair_of(n)[1] + " So they say.") for n in range(30)]
    grown = files.add(new, name="b.jsonl", before=first)
    assert grown.examples.height == 60 and not leakage({PYTHON: grown.examples})
    forced = files.add(new, "train", name="b.jsonl", before=first)
    left_out = forced.lines.filter(pl.col("file") == "b.jsonl").sort("line")["reason_left_out"].to_list()
    expected = [None if splits[pair_of(n)[0]] == "train" else too_close(splits[pair_of(n)[0]]) for n in range(30)]
    assert left_out == expected
    assert not leakage({PYTHON: forced.examples})


def test_removing_a_file_leaves_the_others_as_they_were(files: Files):
    first = files.add([pair_of(n) for n in range(10)])
    both = files.add([pair_of(n) for n in range(5, 20)], name="b.jsonl", before=first, licence="MIT")
    (digest,) = set(both.lines.filter(pl.col("file") == "b.jsonl")["file_digest"])
    back = without_files(both, [digest])
    assert back.examples.equals(first.examples) and back.lines.equals(first.lines)
    assert without_files(back, set(back.lines["file_digest"])).examples.is_empty()


def test_a_known_file_is_not_new_and_keeps_its_split(files: Files):
    imported = files.add([pair_of(1)])
    file = read_examples(files.folder / "a.jsonl")
    assert new_files(imported, [(file, None)]) == []
    with pytest.raises(InputError, match=r"a\.jsonl is imported already .*split by group.*dataset remove"):
        new_files(imported, [(file, "test")])
    other = files.write("c.jsonl", [pair_of(2)])
    with pytest.raises(InputError, match=r"c\.jsonl has the bytes of c\.jsonl: give it for one split only"):
        new_files(imported, [(other, "test"), (other, "train")])
    assert new_files(imported, [(other, "test"), (other, "test")]) == [(other, "test")]


def test_a_known_file_keeps_its_tenant_and_says_so(files: Files):
    """It would train for the wrong tenant while the command reports success."""
    imported = files.add([pair_of(1)])
    file = read_examples(files.folder / "a.jsonl")
    with pytest.raises(InputError, match=r"imported already .*of no tenant.*dataset remove"):
        new_files(imported, [(file, None)], "acme")
    owned = files.add([pair_of(1)], tenant="acme")
    assert new_files(owned, [(file, None)], "acme") == new_files(owned, [(file, None)]) == []
    with pytest.raises(InputError, match=r"of tenant acme"):
        new_files(owned, [(file, None)], "umbrella")


def test_a_token_in_a_name_is_replaced_and_names_stay_distinct(files: Files):
    """File, licence, source and tenant are shown, published and kept in Dagster's history."""
    tokens = ["ghp_" + letter * 2 + "k3Qw9Xv7Lm2Rt8Yp4Bn6Hj1Gf5Ds0AcUeI" for letter in "ZY"]
    for number, token in enumerate(tokens):
        licence, source = f"MIT {token}", f"https://ann:{token}@git.invalid/x"
        file = files.write(f"a-{token}.jsonl", [pair_of(number)], licence=licence, source=source)
        said = incoming(PYTHON, file, None, Stated(tenant=f"t-{token}"))[0]
        assert token not in str(said) and said.file.startswith("a-GITHUB_TOKEN-") and said.file.endswith(".jsonl")
        assert (said.licence[:4], said.tenant[:2]) == ("MIT ", "t-")
    first, second = (incoming(PYTHON, files.write("b.jsonl", [pair_of(1)]), None, Stated("L", "s", t)) for t in tokens)
    assert first[0].tenant != second[0].tenant
    owned = files.add([pair_of(3)], name="c.jsonl", tenant=tokens[0])
    again = read_examples(files.folder / "c.jsonl")
    assert new_files(owned, [(again, None)], tokens[0]) == []
    with pytest.raises(InputError, match="imported already"):
        new_files(owned, [(again, None)], tokens[1])


def test_the_digest_does_not_depend_on_the_place_of_the_file(files: Files, tmp_path: Path):
    here = files.add([pair_of(n) for n in range(20)])
    (tmp_path / "elsewhere").mkdir()
    moved = Files(tmp_path / "elsewhere", files.recipe).add([pair_of(n) for n in range(20)], name="other.jsonl")
    assert frame_digest(Example, moved.examples) == frame_digest(Example, here.examples)


# --- secrets ---------------------------------------------------------------------------------------------------------

SECRET = "e2b" + "_" + "0123456789abcdef" * 2 + "01234567"


def test_secrets_become_placeholders_the_same_within_an_example(files: Files):
    imported = files.add([(f"Use {SECRET} here.", f"key = '{SECRET}'"), pair_of(1)])
    texts = imported.examples["messages"].to_list()
    assert not any(SECRET in text for text in texts)
    (redacted,) = [json.loads(text) for text in texts if "E2B_API_KEY" in text]
    assert redacted[0]["content"] == "Use <E2B_API_KEY:1> here." and "E2B_API_KEY:1" in redacted[1]["content"]
    assert imported.lines.sort("line")["secrets"].to_list() == [2, 0]


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        ("Set the password =", "'Tr0ub4dor3xyzQ9vL'", "'<SECRET:1>'"),
        ("export API_KEY=", "q8Zr5TfK2mWx9LbNc4Vd7Hs1", "<SECRET:1>"),
        (f"password = '{SECRET[4:24]}Q' and then: export API_KEY=", "q8Zr5TfK2mWx9LbNc4Vd7Hs1", "<SECRET:2>"),
    ],
)
def test_secrets_that_only_the_whole_conversation_gives_away(files: Files, question: str, answer: str, expected: str):
    """The blocking check looks at the whole: nothing that is imported may fail it."""
    imported = files.add([(question, answer)])
    assert json.loads(imported.examples["messages"][0])[1]["content"] == expected
    assert imported.lines["secrets"][0] >= 1 and secret_problems(imported.examples) == []


def test_personal_data_goes_where_the_deployment_says_so(files: Files):
    pairs = [("Who wrote this fine program for us?", "jane.doe@example.org did")]
    assert "jane.doe@example.org" in files.add(pairs).examples["messages"][0]
    assert "jane.doe@example.org" not in files.add(pairs, also=["email"]).examples["messages"][0]


# --- with the experience ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def experience(recipe: DatasetRecipe) -> pl.DataFrame:
    executions = fleet(60)
    evidence = evidence_of(executions)
    groups = assign_groups(evidence.executions, no_repairs(), None, recipe)
    return build_dataset(PYTHON, evidence, groups, recipe).examples


def test_nothing_imported_changes_nothing(experience: pl.DataFrame, recipe: DatasetRecipe):
    for imported in (None, table(Example, [])):
        joined, left_out = add_imported(experience, imported, recipe)
        assert joined.equals(experience) and left_out.is_empty()


def test_what_equals_or_would_leak_is_left_out(files: Files, experience: pl.DataFrame):
    """The code of each split of the experience, under other names and another question, for training."""
    rows = {row["split"]: row for row in experience.sort("example_id").iter_rows(named=True)}
    turns = {split: [m["content"] for m in json.loads(row["messages"])] for split, row in rows.items()}
    renamed = [
        (f"Something of my own, number {i}?", turns[s][1].replace("solve_", "run_")) for i, s in enumerate(turns)
    ]
    imported = files.add([*renamed, (turns["train"][0], turns["train"][1]), pair_of(1)], "train")
    joined, left_out = add_imported(experience, imported.examples, files.recipe)
    assert sorted(left_out["reason"]) == sorted([EQUAL, too_close("validation"), too_close("test")])
    new = joined.filter(pl.col("provenance") == "imported")
    assert new.height == 2 and set(new["split"]) == {"train"}
    assert joined.filter(pl.col("provenance") == "experience").equals(experience)
    assert not leakage({PYTHON: joined}) and not example_problems(PYTHON, joined)


def test_an_import_without_a_split_follows_the_experience_of_any_domain(files: Files, experience: pl.DataFrame):
    held_out = experience.filter(pl.col("split") == "test").sort("example_id").row(0, named=True)
    code = json.loads(held_out["messages"])[1]["content"]
    pairs = [("Something of my own, is it not?", code)]
    alone, with_it = files.add(pairs), files.add(pairs, others=[experience])
    assert with_it.examples["split"].to_list() == ["test"] != alone.examples["split"].to_list()
    assert with_it.examples["group_id"].to_list() == [held_out["group_id"]]
    assert fates(files.add(pairs, "train", others=[experience])) == [too_close("test")]


def test_only_the_tenants_that_the_recipe_trains_for(files: Files, experience: pl.DataFrame):
    recipe = files.recipe.model_copy(update={"tenants": ("acme",)})
    for tenant, used in (("acme", True), (None, True), ("other", False)):
        imported = files.add([pair_of(1)], "train", tenant=tenant)
        joined, left_out = add_imported(experience, imported.examples, recipe)
        assert (joined.height - experience.height, left_out["reason"].to_list()) == ((1, []) if used else (0, [TENANT]))
