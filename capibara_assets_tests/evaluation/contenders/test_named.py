"""What a line of text names: folders, checkpoints, endpoints, optimised prompts, former runs; and what it does not."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.errors import InputError
from capibara_assets.evaluation.answering.answer import Answer
from capibara_assets.evaluation.contenders.contenders import EndpointContender, ModelContender, StoredContender
from capibara_assets.evaluation.contenders.named import contender_of, dspy_framing
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.storage.records import table
from capibara_assets_tests.evaluation.contenders.test_contenders import adapter

# as `dspy.ChainOfThought("question -> answer")` saves itself after an optimiser chose its demonstrations
PROGRAM: dict[str, Any] = {
    "predict": {
        "traces": [],
        "train": [],
        "demos": [
            {"augmented": True, "question": "Return 1.", "reasoning": "It is one.", "answer": "return 1"},
            {"question": "Return 2.", "answer": "return 2"},
        ],
        "signature": {
            "instructions": "Write Python that does what is asked.\n",
            "fields": [
                {"prefix": "Question:", "description": "${question}"},
                {"prefix": "Reasoning: Let's think step by step in order to", "description": "${reasoning}"},
                {"prefix": "Answer:", "description": "only code"},
            ],
        },
        "lm": None,
    },
    "metadata": {"dependency_versions": {"python": "3.11", "dspy": "3.0.3"}},
}


@pytest.mark.parametrize(
    ("text", "protocol", "url", "model"),
    [
        ("https://host/v1#org/model-7b", "openai", "https://host/v1", "org/model-7b"),
        ("http://127.0.0.1:8000/v1#m", "openai", "http://127.0.0.1:8000/v1", "m"),
        ("openai:gpt-4o-mini", "openai", "https://api.openai.com/v1", "gpt-4o-mini"),
        ("openai:m@http://host:8000/v1", "openai", "http://host:8000/v1", "m"),
        ("ollama:qwen2.5-coder:1.5b", "ollama", "http://localhost:11434", "qwen2.5-coder:1.5b"),
        ("ollama:m@http://host:11434", "ollama", "http://host:11434", "m"),
    ],
)
def test_endpoints(text: str, protocol: str, url: str, model: str):
    found = contender_of(text, name="remote")
    assert isinstance(found, EndpointContender) and found.name == "remote"
    assert (found.endpoint.protocol, found.endpoint.url, found.endpoint.model) == (protocol, url, model)
    assert contender_of(text).name == text


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("https://host/v1", "which model"),
        ("openai:", "expected openai:MODEL"),
        ("ollama:m@ftp://host", "no address"),
        ("ollama:m@host:11434", "no address"),
        ("https://user:secret@host/v1#m", "does not belong into its address"),
        ("checkpoint:abc", "no checkpoint store"),
        ("/nowhere/at/all", "no such file or folder; a contender is a folder"),
        ("gpt-4o", "no such file or folder"),
    ],
)
def test_what_names_nothing_is_refused_with_what_would(text: str, match: str):
    with pytest.raises(InputError, match=match):
        contender_of(text)


def test_a_key_in_an_address_is_not_repeated():
    with pytest.raises(InputError) as refused:
        contender_of("https://user:secret@host/v1#m")
    assert "secret" not in str(refused.value)


def test_a_models_folder(folder: Path, tmp_path: Path):
    assert contender_of(str(folder), name="base") == ModelContender("base", folder)
    with pytest.raises(InputError, match="holds neither a model"):
        contender_of(str(tmp_path))


def test_an_adapters_folder_and_its_base(folder: Path, tmp_path: Path):
    write_adapter(adapter(1), tmp_path / "bare")
    found = contender_of(str(tmp_path / "bare"), base=folder)
    assert isinstance(found, ModelContender) and found.model == folder
    assert found.adapter is not None and found.adapter.modules == ("model.layers.0.self_attn.q_proj",)
    with pytest.raises(InputError, match="names no base model"):
        contender_of(str(tmp_path / "bare"))
    own = LoraAdapter({**adapter(1).config, "base_model_name_or_path": str(folder)}, adapter(1).tensors)
    write_adapter(own, tmp_path / "own")
    named = contender_of(str(tmp_path / "own"))
    assert isinstance(named, ModelContender) and named.model == folder


def test_a_checkpoint_is_restored_to_a_folder(folder: Path):
    asked: list[str] = []

    def restore(ref: str) -> Path:
        asked.append(ref)
        return folder

    found = contender_of("checkpoint:consensus@v3", restore=restore)
    assert asked == ["consensus@v3"] and found == ModelContender("checkpoint:consensus@v3", folder)


def test_a_prompt_that_dspy_optimised(folder: Path, tmp_path: Path):
    file = tmp_path / "program.json"
    file.write_text(json.dumps(PROGRAM))
    found = contender_of(str(file), name="optimized", base=folder)
    assert isinstance(found, ModelContender) and found.model == folder and found.adapter is None
    assert found.framing.system == "Write Python that does what is asked."
    assert found.framing.demos == (
        {"role": "user", "content": "Return 1."},
        {"role": "assistant", "content": "return 1"},
        {"role": "user", "content": "Return 2."},
        {"role": "assistant", "content": "return 2"},
    )
    with pytest.raises(InputError, match="name the base model"):
        contender_of(str(file))


def test_a_single_predictor_with_several_inputs():
    predictor = {
        "demos": [{"context": "c", "question": "q", "answer": "a"}],
        "signature": {
            "instructions": "I",
            "fields": [
                {"prefix": "Context:", "description": "${context}"},
                {"prefix": "Question:", "description": "${question}"},
                {"prefix": "Answer:", "description": "${answer}"},
            ],
        },
    }
    found = dspy_framing(predictor, "p.json")
    assert found.demos[0] == {"role": "user", "content": "Context: c\nQuestion: q"}


def test_programs_that_are_no_one_prompt_are_refused():
    predictor = PROGRAM["predict"]
    with pytest.raises(InputError, match=r"has 2 \(a, b\)"):
        dspy_framing({"a": predictor, "b": predictor}, "p.json")
    with pytest.raises(InputError, match="no instructions"):
        dspy_framing({"signature": {"fields": []}}, "p.json")
    for demo, match in (({"question": "q"}, "found question"), ({"reasoning": "r", "answer": "a"}, "no question")):
        with pytest.raises(InputError, match=match):
            dspy_framing({**predictor, "demos": [demo]}, "p.json")
    signature = predictor["signature"]
    for odd in ({"demos": [5]}, {"demos": 5}, {"signature": {**signature, "fields": ["q", "a"]}},
                {"signature": {**signature, "fields": "q"}}):  # fmt: skip
        with pytest.raises(InputError, match=r"p\.json.*(expected an object|are lists), found (int|str)"):
            dspy_framing({**predictor, **odd}, "p.json")


ROWS = [
    {"item_id": "i0", "text": "a", "tokens": 3, "finish": "length"},
    {"item_id": "i0", "sample": 1.0, "text": "b"},
    {"example_id": "i1", "text": ""},
]


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_answers_of_a_former_run(tmp_path: Path, suffix: str):
    file = tmp_path / f"former{suffix}"
    file.write_text(json.dumps(ROWS) if suffix == ".json" else "".join(json.dumps(row) + "\n" for row in ROWS))
    found = contender_of(str(file), name="former")
    assert isinstance(found, StoredContender) and not found.scores
    assert found.answers == {
        ("i0", 0): ("a", 3, "length"), ("i0", 1): ("b", None, "stop"), ("i1", 0): ("", None, "stop"),
    }  # fmt: skip


def test_a_published_table_of_answers_and_one_contender_of_it(tmp_path: Path):
    rows = [
        Answer(contender=name, item_id="i0", sample=0, text=f"of {name}", tokens=2, finish="stop")
        for name in ("base", "consensus")
    ]
    file = tmp_path / "answers.parquet"
    table(Answer, rows).write_parquet(file)
    found = contender_of(f"{file}#consensus")
    assert isinstance(found, StoredContender) and found.answers == {("i0", 0): ("of consensus", 2, "stop")}
    with pytest.raises(InputError, match=r"several contenders: .*#base \(base, consensus\)"):
        contender_of(str(file))
    with pytest.raises(InputError, match="nothing of 'voter'"):
        contender_of(f"{file}#voter")


def test_scores_of_a_former_run(tmp_path: Path):
    file = tmp_path / "scores.parquet"
    pl.DataFrame({"item_id": ["i0", "i1"], "score": [1.0, 0.0], "contender": ["x", "x"]}).write_parquet(file)
    found = contender_of(str(file))
    assert isinstance(found, StoredContender) and found.scores == {"i0": 1.0, "i1": 0.0} and not found.answers


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([], "holds no rows"),
        ([{"text": "a"}], "row 1: expected an item_id"),
        ([{"item_id": "i0"}], "row 1: expected a text"),
        ([{"item_id": "i0", "text": "a"}, {"item_id": "i0", "text": "b"}], "row 2: a second answer"),
        ([{"item_id": "i0", "score": 1}, {"item_id": "i0", "score": 1}], "row 2: a second score"),
        ([{"item_id": "i0", "text": "a"}, {"item_id": "i1", "score": 1}], "mixes answers and scores"),
        ([{"item_id": "i0", "text": "a", "finish": "boom"}], "finish is 'boom'"),
        *(([{"item_id": "i0", "text": "a", "sample": odd}], "row 1: sample is") for odd in ("x", [1], -1, 1.5, True)),
        *(([{"item_id": "i0", "text": "a", "tokens": odd}], "row 1: tokens is") for odd in ("abc", 10**30, False)),
        ('[{"item_id": "i0", "text": "a", "tokens": 1e999}]', "tokens is inf"),
        *(([{"item_id": "i0", "score": odd}], "row 1: expected a text") for odd in (10**400, True, "1")),
        ({"a": 1}, "expected a list of objects"),
        ("{", "is not JSON"),
    ],
)
def test_a_file_that_is_no_run_is_refused_with_the_row(tmp_path: Path, rows: Any, match: str):
    file = tmp_path / "former.json"
    file.write_text(rows if isinstance(rows, str) else json.dumps(rows))
    with pytest.raises(InputError, match=match):
        contender_of(str(file))


def test_files_of_other_kinds_are_refused(tmp_path: Path):
    (tmp_path / "model.bin").write_bytes(b"x")
    (tmp_path / "rows.parquet").write_bytes(b"x")
    (tmp_path / "rows.jsonl").write_text("{\n")
    for name, match in (
        ("model.bin", "no known kind"),
        ("rows.parquet", "no"),
        ("rows.jsonl", "rows.jsonl:1 is not JSON"),
    ):
        with pytest.raises(InputError, match=match):
            contender_of(str(tmp_path / name))
