"""Tokenised sets on disk: the same whatever the workers and batches, mapped when read, faults named."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from capibara_assets.datasets.tokens import batches as token_batches
from capibara_assets.datasets.tokens.batches import CONTROL, MASKED, NO_JSON, NO_TEXT
from capibara_assets.datasets.tokens.lengths import token_lengths
from capibara_assets.datasets.tokens.packing import IGNORED
from capibara_assets.datasets.tokens.preprocessing import DataPreprocessor, TokenisedSet
from capibara_assets.errors import InputError
from capibara_assets_tests.datasets.chat_forms import FORMS, Form, chatml, tokenizer_of


def frame_of(conversations: dict[str, Any]) -> pl.DataFrame:
    texts = [value if isinstance(value, str) else json.dumps(value) for value in conversations.values()]
    return pl.DataFrame({"example_id": list(conversations), "messages": texts})


def asked(question: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def many(count: int) -> pl.DataFrame:
    """Conversations of several lengths and forms, some of which cannot be trained on."""
    made: dict[str, Any] = {}
    for number in range(count):
        turns = asked(f"What is {number} + 1?" * (1 + number % 5), f"print({number} + 1)\n" * (number % 7) + "# é🙂")
        if number % 11 == 3:
            turns = [*turns, *asked("And twice?", f"{2 * number}")]
        if number % 13 == 5:
            turns[0]["content"] += "<|im_end|>"
        if number % 17 == 6:
            turns[0]["content"] *= 40
        made[f"e{number:04d}"] = turns
    return frame_of(made)


@pytest.fixture
def tokenizer() -> Any:
    return tokenizer_of(FORMS["chatml"])


def whole(done: TokenisedSet) -> dict[str, Any]:
    return {**done.table.to_pydict(), "audit": done.audit}


def test_columns_are_the_tokens_of_each_example(tokenizer: Any) -> None:
    frame = many(60)
    done = DataPreprocessor(tokenizer, 256, on_fault="leave_out").preprocess(frame)
    kept = {name: index for index, name in enumerate(done.example_ids)}
    assert len(done) == len(kept) and set(kept) | set(done.left_out) == set(frame["example_id"])
    for name, messages in frame.iter_rows():
        if name not in kept:
            continue
        ids, labels = done.tokens(kept[name])
        rendered = tokenizer.apply_chat_template(json.loads(messages), tokenize=True, return_dict=True)["input_ids"]
        assert ids.tolist() == rendered
        assert done.lengths[kept[name]] == len(ids)
        assert done.supervised[kept[name]] == (labels != IGNORED).sum() > 0
        assert set(labels[labels != ids].tolist()) == {IGNORED}
    assert done.audit["left_out"][CONTROL] == sum(reason == CONTROL for reason in done.left_out.values()) == 5
    assert done.audit["tokens"] == done.lengths.sum()


def test_batches_and_workers_do_not_change_the_bytes(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = many(90)
    files = []
    for place, workers in enumerate((1, 2)):
        folder = tmp_path / str(place)
        done = DataPreprocessor(tokenizer, 256, workers=workers, on_fault="leave_out").preprocess(
            frame, folder, dataset_digest="d"
        )
        files.append(next(folder.iterdir()).read_bytes())
    assert files[0] == files[1]
    monkeypatch.setattr(token_batches, "_BATCH_BYTES", 1000)
    parts = DataPreprocessor(tokenizer, 256, on_fault="leave_out").preprocess(frame)
    assert parts.table.column("input_ids").num_chunks > 10
    assert whole(parts) == whole(done)
    assert all(np.array_equal(parts.tokens(i)[1], done.tokens(i)[1]) for i in range(len(done)))


@pytest.mark.parametrize("name", sorted(FORMS))
@pytest.mark.parametrize("kind", ["bytes", "nfc"])
def test_lengths_of_tokens_give_the_labels_that_offsets_give(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = tokenizer_of(FORMS[name], kind)
    assert token_lengths(tokenizer.backend_tokenizer) is not None
    extra = frame_of(
        {"decomposed": asked("e\u0301?", "cafe\u0301 \U0001f642"), "edges": asked("x\n", "\u6f22\U0001f642")}
    )
    frame = pl.concat([many(60), extra])
    found = whole(DataPreprocessor(tokenizer, 256, on_fault="leave_out").preprocess(frame))
    monkeypatch.setattr(token_batches, "token_lengths", lambda backend: None)
    assert whole(DataPreprocessor(tokenizer, 256, on_fault="leave_out").preprocess(frame)) == found
    assert found["left_out"].count(None) > 40


def test_only_tokenizers_that_keep_every_byte_go_without_offsets(nano: Path) -> None:
    from transformers import AutoTokenizer

    lengths = token_lengths(AutoTokenizer.from_pretrained(nano).backend_tokenizer)
    assert lengths is not None
    assert (lengths.form, lengths.of[5], len(lengths.of)) == (None, len("<|end|>"), 4096)
    nfc = token_lengths(tokenizer_of(FORMS["chatml"], "nfc").backend_tokenizer)
    assert nfc is not None
    assert (nfc.fits("caf\u00e9"), nfc.fits("cafe\u0301")) == (True, False)
    for kind in ("sentencepiece", "rstrip"):
        assert token_lengths(tokenizer_of(FORMS["chatml"], kind).backend_tokenizer) is None


@pytest.mark.parametrize("template", [None, "looks into its contents"])
def test_jinja_in_processes_gives_the_same(template: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | length }}:{{ m.content }}<|end|>{% endfor %}"
    tokenizer = tokenizer_of(Form(looks, "<|end|>", "<s>", chatml) if template else FORMS["chatml"])
    plain = DataPreprocessor(tokenizer, 256, workers=2, on_fault="leave_out").preprocess(many(40))
    started = []
    monkeypatch.setattr(token_batches, "_POOL_FROM", 1)
    pool = token_batches.process_pool

    def counted(*arguments: Any) -> Any:
        started.append(arguments)
        return pool(*arguments)

    monkeypatch.setattr(token_batches, "process_pool", counted)
    assert whole(DataPreprocessor(tokenizer, 256, workers=2, on_fault="leave_out").preprocess(many(40))) == whole(plain)
    assert len(started) == (1 if template else 0)


def test_the_file_is_mapped_and_read_again_without_tokenising(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preprocessor = DataPreprocessor(tokenizer, 256, on_fault="leave_out")
    first = preprocessor.preprocess(many(60), tmp_path, dataset_digest="d")
    [path] = tmp_path.iterdir()
    assert str(path) in Path("/proc/self/maps").read_text()
    allocated = pa.total_allocated_bytes()
    assert preprocessor.preprocess(many(60), tmp_path, dataset_digest="d").table.nbytes > 10_000
    assert pa.total_allocated_bytes() - allocated < 10_000  # its columns are the file

    def never(*arguments: Any, **more: Any) -> Iterator[Any]:
        raise AssertionError("tokenised again")

    monkeypatch.setattr("capibara_assets.datasets.tokens.preprocessing.token_batches", never)
    assert whole(preprocessor.preprocess(many(60), tmp_path, dataset_digest="d")) == whole(first)
    with pytest.raises(AssertionError, match="again"):
        preprocessor.preprocess(many(60), tmp_path / "elsewhere", dataset_digest="d")


@pytest.mark.parametrize("damage", [b"", b"ARROW1\0\0 and no more"])
def test_a_damaged_file_is_made_again(tokenizer: Any, tmp_path: Path, damage: bytes) -> None:
    preprocessor = DataPreprocessor(tokenizer, 256, on_fault="leave_out")
    first = whole(preprocessor.preprocess(many(30), tmp_path, dataset_digest="d"))
    [path] = tmp_path.iterdir()
    path.unlink()
    path.write_bytes(damage)
    assert whole(preprocessor.preprocess(many(30), tmp_path, dataset_digest="d")) == first
    assert list(tmp_path.iterdir()) == [path]


def test_the_key_is_of_all_that_changes_the_bytes(tokenizer: Any) -> None:
    frame = many(9)
    one = DataPreprocessor(tokenizer, 256)
    keys = {
        one.key(frame, "d"),
        one.key(frame, "other"),
        one.key(frame.head(8), "d"),
        one.key(frame.reverse(), "d"),
        DataPreprocessor(tokenizer, 255).key(frame, "d"),
        DataPreprocessor(tokenizer_of(FORMS["phi 3"]), 256).key(frame, "d"),
        DataPreprocessor(tokenizer_of(FORMS["chatml"], "nfc"), 256).key(frame, "d"),
        DataPreprocessor(tokenizer_of(FORMS["chatml"], pad="<|im_end|>"), 256).key(frame, "d"),
    }
    assert len(keys) == 8
    assert one.key(frame, "d") == DataPreprocessor(tokenizer, 256, workers=1).key(frame, "d")


def test_an_example_that_cannot_be_trained_on_is_an_error_that_names_it(tokenizer: Any, tmp_path: Path) -> None:
    conversations = {
        "good": asked("One?", "1"),
        "long": asked("One?", "one " * 200),
        "asked only": asked("One?", "1")[:1],
        "half": '[{"role": "user", "content": "\\ud83d"}, {"role": "assistant", "content": "1"}]',
        "no json": "{",
        "control": asked("What is <|im_end|>?", "An end."),
    }
    frame = frame_of(conversations)
    reasons = {
        "long": "longer than max_length=64",
        "asked only": MASKED,
        "half": NO_TEXT,
        "no json": NO_JSON,
    }
    named = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    with pytest.raises(InputError) as caught:
        DataPreprocessor(tokenizer, 64).preprocess(frame, tmp_path, dataset_digest="d")
    assert f"4 of 6 examples cannot be trained on: {named}" in str(caught.value)
    left = DataPreprocessor(tokenizer, 64, on_fault="leave_out").preprocess(frame, tmp_path, dataset_digest="d")
    assert left.left_out == {**reasons, "control": CONTROL}
    assert left.example_ids == ["good"]
    only_control = DataPreprocessor(tokenizer, 64).preprocess(
        frame.filter(pl.col("example_id").is_in(["good", "control"]))
    )
    assert only_control.left_out == {"control": CONTROL}  # left out by name and counted, not an error


def test_nothing_that_a_tokenizer_file_asks_for_cuts_or_pads(tokenizer: Any) -> None:
    expected = whole(DataPreprocessor(tokenizer, 512).preprocess(frame_of({"a": asked("One?", "one " * 90)})))
    tokenizer.backend_tokenizer.enable_truncation(8)
    tokenizer.backend_tokenizer.enable_padding(length=600)
    assert whole(DataPreprocessor(tokenizer, 512).preprocess(frame_of({"a": asked("One?", "one " * 90)}))) == expected


def test_no_examples(tokenizer: Any, tmp_path: Path) -> None:
    done = DataPreprocessor(tokenizer, 64).preprocess(many(1).head(0), tmp_path, dataset_digest="d")
    assert (len(done), len(done.lengths), done.audit["tokens"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"max_length": 1}, "max_length 1"),
        ({"workers": 0}, "workers 0"),
        ({"on_fault": "ignore"}, "on_fault 'ignore'"),
    ],
)
def test_settings_that_do_not_exist(tokenizer: Any, setting: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DataPreprocessor(tokenizer, **setting)
