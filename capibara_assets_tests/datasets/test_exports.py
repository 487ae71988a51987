"""What is written is read back: import(export(x)) is x, in every format."""

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given

from capibara_assets.datasets.exports import export_dataset, messages_line, prompt_completion_line, text_line
from capibara_assets.datasets.imported.formats import parse_record
from capibara_assets.datasets.imported.join import Imported, Stated, incoming, place_incoming
from capibara_assets.datasets.imported.read import read_examples
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import SPLITS
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets_tests.datasets.imported.test_join import pair_of
from capibara_assets_tests.datasets.tokens.test_chat_forms import CHATS, chat


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    path = tmp_path_factory.mktemp("own") / "own.jsonl"
    chats = [chat(*pair_of(n)) for n in range(40)]
    chats += [
        chat(*pair_of(90), *pair_of(91)),
        chat(*pair_of(92), system="Be brief."),
        chat(" a\nwith <s>?", "ünï\u2028 \n"),
    ]
    path.write_text("\n".join(json.dumps({"messages": messages}) for messages in chats))
    recipe = shipped_recipe("dataset", DatasetRecipe)
    new = incoming(Domain.PYTHON, read_examples(path), None, Stated("MIT"))
    return place_incoming(Domain.PYTHON, Imported.empty(), [], new, recipe).examples


@pytest.mark.parametrize(
    ("line_of", "form", "unfit"),
    [(text_line, "text", 1), (messages_line, "messages", 0), (prompt_completion_line, "prompt-completion", 0)],
)
def test_round_trip(examples: pl.DataFrame, tmp_path: Path, line_of, form: str, unfit: int):
    summary = export_dataset(examples, tmp_path, line_of, {"domain": "python"})
    assert len(summary["left_out"]) == unfit and summary["licences"] == {"MIT": examples.height}
    assert json.loads((tmp_path / "dataset.json").read_text()) == summary
    for split in SPLITS:
        path = tmp_path / f"{split}.jsonl"
        kept = examples.filter((pl.col("split") == split) & ~pl.col("example_id").is_in(list(summary["left_out"])))
        assert path.read_text().count("\n") == summary["examples"][split] == kept.height
        back = read_examples(path)
        assert not back.faults and back.format == form
        found = [row.parsed.messages for row in back.rows]
        assert found == [json.loads(messages) for messages in kept.sort("example_id")["messages"]]


@given(CHATS)
def test_every_conversation_comes_back_from_messages_and_prompt_completion(messages: list[dict[str, str]]):
    for line_of in (messages_line, prompt_completion_line):
        assert parse_record(json.loads(json.dumps(line_of(messages)))).messages == messages


def test_the_mistral_form_is_byte_exact():
    assert text_line(chat("a", "b")) == {"text": "<s>[INST] a [/INST] b </s>"}


def test_an_export_does_not_overwrite_another(examples: pl.DataFrame, tmp_path: Path):
    export_dataset(examples, tmp_path, messages_line, {})
    with pytest.raises(InputError, match=r"holds train\.jsonl, .* already"):
        export_dataset(examples, tmp_path, messages_line, {})
