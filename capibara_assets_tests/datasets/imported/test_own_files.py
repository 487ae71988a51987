"""Files of one's own: every form, no leak between the splits, the same split every time."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.datasets.imported.own_files import digest_of, files_below, read_own
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets_tests.datasets.imported.test_join import SECRET, pair_of


@pytest.fixture(scope="module")
def recipe() -> DatasetRecipe:
    return shipped_recipe("dataset", DatasetRecipe)


def pairs(*numbers: int) -> list[dict[str, Any]]:
    return [{"prompt": question, "completion": answer} for question, answer in map(pair_of, numbers)]


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_every_form_gives_the_same_examples(tmp_path: Path, recipe: DatasetRecipe) -> None:
    found = []
    chats = [
        {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}
        for q, a in map(pair_of, range(8))
    ]
    instructions = [{"instruction": q, "output": a} for q, a in map(pair_of, range(8))]
    forms = {"chats": chats, "pairs": pairs(*range(8)), "instructions": instructions}
    for name, rows in forms.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))
        pl.DataFrame(rows).write_parquet(tmp_path / f"{name}.parquet")
        for file in (lines(tmp_path / f"{name}.jsonl", rows), tmp_path / f"{name}.json", tmp_path / f"{name}.parquet"):
            found.append(read_own([file], [], recipe).examples)
    assert len(found) == 9 and found[0].height == 8
    assert all(each.equals(found[0]) for each in found)
    assert found[0].columns == ["example_id", "group_id", "split", "messages"]


def test_whole_groups_are_held_back_and_the_order_of_files_does_not_matter(
    tmp_path: Path, recipe: DatasetRecipe
) -> None:
    one, other = (
        lines(tmp_path / "in/a.jsonl", pairs(*range(40))),
        lines(tmp_path / "in/b/b.jsonl", pairs(*range(30, 90))),
    )
    own, again = read_own([one, other], [], recipe), read_own([other, one], [], recipe)
    assert own.examples.equals(again.examples) and files_below([tmp_path / "in"]) == [one, other]
    assert own.counts["equal"] == 10 and own.counts["train"] + own.counts["validation"] == 90 == own.examples.height
    assert own.counts["split_off"] and 0 < own.counts["validation"] < 40
    splits = own.examples.group_by("group_id").agg(pl.col("split").n_unique())
    assert splits["split"].max() == 1 and set(own.examples["split"]) == {"train", "validation"}


def test_what_is_too_close_to_validation_does_not_train(tmp_path: Path, recipe: DatasetRecipe) -> None:
    data, val = lines(tmp_path / "data.jsonl", pairs(*range(20))), lines(tmp_path / "val.jsonl", pairs(18, 19, 50))
    own = read_own([data], [val], recipe)
    assert (own.counts["train"], own.counts["validation"], own.counts["split_off"]) == (18, 3, False)
    assert own.counts["left_out"] == {"too close to an example in validation, which stays": 2}
    with pytest.raises(InputError, match="no train example is left"):
        read_own([lines(tmp_path / "same.jsonl", pairs(18, 50))], [val], recipe)


def test_few_examples_still_validate_and_one_cannot(tmp_path: Path, recipe: DatasetRecipe) -> None:
    for count in range(2, 8):
        counts = read_own([lines(tmp_path / f"{count}.jsonl", pairs(*range(count)))], [], recipe).counts
        assert counts["train"] and counts["validation"] and counts["train"] + counts["validation"] == count
    with pytest.raises(InputError, match="all alike: none can be held back to validate with; give --val"):
        read_own([lines(tmp_path / "1.jsonl", pairs(1))], [], recipe)


def test_secrets_do_not_train(tmp_path: Path, recipe: DatasetRecipe) -> None:
    file = lines(
        tmp_path / "a.jsonl", [*pairs(1, 2), {"prompt": "How do I log in?", "completion": f"key = {SECRET!r}"}]
    )
    own = read_own([file], [], recipe)
    assert own.counts["secrets"] == 1 and SECRET not in "".join(own.examples["messages"])


def test_a_table_of_the_graph_keeps_its_splits(tmp_path: Path, recipe: DatasetRecipe) -> None:
    rows = [
        {"example_id": str(n), "group_id": str(n), "split": split, "messages": "[]", "kind": "solve"}
        for n, split in enumerate(["train", "test", "validation", "train"])
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "examples.parquet")
    own = read_own([tmp_path / "examples.parquet"], [], recipe)
    assert own.examples["example_id"].to_list() == ["0", "2", "3"] and own.counts["train"] == 2
    with pytest.raises(InputError, match="a table with splits of its own"):
        read_own([tmp_path / "examples.parquet"], [lines(tmp_path / "v.jsonl", pairs(1))], recipe)


def test_faults_name_the_file_and_the_line(tmp_path: Path, recipe: DatasetRecipe) -> None:
    file = lines(tmp_path / "a.jsonl", [*pairs(1), {"prompt": "no answer"}, {"text": "no marks"}])
    with pytest.raises(InputError, match=r"a.jsonl:2: fields are prompt.*\(and 1 more: `capibara dataset validate"):
        read_own([file], [], recipe)
    with pytest.raises(InputError, match="does not exist: give a file or a folder of examples"):
        files_below([tmp_path / "none"])
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "README.md").write_text("nothing")
    with pytest.raises(InputError, match="no examples in"):
        files_below([tmp_path / "empty"])


def test_the_digest_is_of_bytes_and_roles(tmp_path: Path) -> None:
    one, other = lines(tmp_path / "a.jsonl", pairs(1)), lines(tmp_path / "b.jsonl", pairs(1))
    assert digest_of([one], []) == digest_of([other], []) != digest_of([], [one])
