"""A run of some seconds: the loss falls, the folder loads, a killed run goes on, the card tells the run's numbers."""

import json
from collections import Counter
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from capibara_assets.errors import InputError
from workshop.base_model import corpus as corpora
from workshop.base_model import training
from workshop.base_model.__main__ import main
from workshop.base_model.card import write_card
from workshop.base_model.corpus import Corpus, Document, build_corpus, standard_library
from workshop.base_model.model import rate
from workshop.base_model.settings import Settings
from workshop.base_model.streams import encode, learned, tokenize_corpus
from workshop.base_model.tokenizer import render_chat
from workshop.base_model.training import train

_TINY = Settings(
    minutes=3 / 60,
    corpus_bytes=1_500_000,
    vocabulary=512,
    hidden=64,
    intermediate=128,
    layers=2,
    heads=2,
    sequence=64,
    batch=4,
    save_minutes=1 / 60,
)


def clock_by_calls(patch: pytest.MonkeyPatch, steps: int = 240) -> None:
    """A clock that moves by the call, so that a busy machine trains as many: about `steps` in the whole budget."""
    calls = count()
    patch.setattr(
        training, "time", SimpleNamespace(monotonic=lambda: next(calls) * _TINY.minutes * 60 / (2 * steps + 20))
    )


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    with pytest.MonkeyPatch.context() as patch:  # the library's tests are chosen by digest: all would be read
        patch.setattr(corpora, "standard_library", lambda tests: islice(standard_library(tests), 150))
        whole = build_corpus(_TINY.corpus_bytes, _TINY.seed, ("click",))
    return replace(whole, training=beginning(whole.training, 60_000), held_out=beginning(whole.held_out, 4_000))


def beginning(documents: tuple[Document, ...], size: int) -> tuple[Document, ...]:
    """The first ones of each language, about `size` characters: scoring and counting all would take most of a run."""
    found, taken = list[Document](), Counter[str]()
    for document in documents:
        if taken[document.language] < size:
            taken[document.language] += len(document.text)
            found.append(document)
    return tuple(found)


@pytest.fixture(scope="module")
def run(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A finished tiny run: (out, state)."""
    return trained(corpus, tmp_path_factory.mktemp("pretraining"), 12)


def trained(corpus: Corpus, root: Path, steps: int) -> tuple[Path, Path]:
    out, state = root / "out", root / "state"
    out.mkdir()
    state.mkdir()
    tokenize_corpus(corpus, _TINY, out, state)
    with pytest.MonkeyPatch.context() as patch:
        clock_by_calls(patch, steps)
        train(_TINY, out, state)
    return out, state


def _metrics(out: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.extended
def test_the_loss_falls(corpus: Corpus, tmp_path: Path) -> None:
    out, _ = trained(corpus, tmp_path, 240)
    losses = [row["loss"] for row in _metrics(out) if "loss" in row]
    assert losses[0] > 5.5  # ln 512 = 6.2
    assert losses[-1] < losses[0] - 1.5


def test_the_folder_loads_in_transformers(run: tuple[Path, Path]) -> None:
    out, state = run
    model = AutoModelForCausalLM.from_pretrained(out)
    assert model.dtype == torch.bfloat16
    assert model.config.architectures == ["LlamaForCausalLM"]
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert model.config.eos_token_id == tokenizer.eos_token_id == tokenizer.convert_tokens_to_ids("<|end|>")
    saved = torch.load(state / "state.pt", weights_only=True)["model"]
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(weight, saved[name].to(torch.bfloat16))


def test_nothing_but_the_model_is_left_in_the_folder(run: tuple[Path, Path]) -> None:
    names = {path.name for path in run[0].iterdir()}
    assert names == {
        "README.md",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "metrics.jsonl",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training_summary.json",
    }


def test_the_card_tells_the_summary(run: tuple[Path, Path]) -> None:
    out, state = run
    summary = json.loads((out / "training_summary.json").read_text())
    text = (out / "README.md").read_text()
    assert f"{summary['parameters']:,}" in text
    assert f"{summary['tokens']:,}" in text
    for scores in (*summary["held_out"]["languages"].values(), summary["held_out"]["all"]):
        assert f"{scores['nats_per_token']:.3f} | {scores['ngram_nats_per_token']:.3f}" in text
    assert str(state) not in text
    assert str(out) not in text
    (out / "README.md").unlink()
    main(["--out", str(out), "--card"])
    assert (out / "README.md").read_text() == text


def test_scores_add_up(run: tuple[Path, Path]) -> None:
    held_out = json.loads((run[0] / "training_summary.json").read_text())["held_out"]
    rows = held_out["languages"].values()
    assert held_out["all"]["tokens"] == sum(row["tokens"] for row in rows)
    mean = sum(row["nats_per_token"] * row["tokens"] for row in rows) / held_out["all"]["tokens"]
    assert held_out["all"]["nats_per_token"] == pytest.approx(mean)


@pytest.mark.extended
def test_a_killed_run_goes_on_where_it_was_saved(
    run: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_by_calls(monkeypatch)
    out, state = tmp_path / "out", tmp_path / "state"
    out.mkdir()
    state.mkdir()
    for name in ("settings.json", "sources.json", "tokenizer.json", "training.npy", "learned.npy"):
        (state / name).symlink_to(run[1] / name)
    for path in run[1].glob("held_out_*.npy"):
        (state / path.name).symlink_to(path)

    class Killed(Exception):
        pass

    accumulate = training.accumulate

    def killed(*arguments: object) -> float:
        if (state / "state.pt").exists() and len(_metrics(out)) > 4:
            raise Killed
        return accumulate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "accumulate", killed)
    with pytest.raises(Killed):
        train(_TINY, out, state)
    at = torch.load(state / "state.pt", weights_only=True)
    assert 0 < at["spent"] < _TINY.minutes * 60
    AutoModelForCausalLM.from_pretrained(out)

    monkeypatch.setattr(training, "accumulate", accumulate)
    train(replace(_TINY, minutes=(at["spent"] + 0.5) / 60), out, state)
    rows = _metrics(out)
    steps = [row["step"] for row in rows if "loss" in row]
    assert steps == sorted(set(steps))
    assert steps[-1] > at["step"]
    assert json.loads((out / "training_summary.json").read_text())["steps"] >= at["step"]


def test_a_state_of_other_settings_is_refused(run: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"hidden 64 \(now 32\)"):
        train(replace(_TINY, hidden=32), tmp_path, run[1])


def test_state_inside_out_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="lies in --out"):
        train(_TINY, tmp_path, tmp_path / "state")


def test_a_card_needs_a_finished_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs a finished pre-training run"):
        write_card(tmp_path)


def test_a_corpus_too_small_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    small = replace(corpus, training=corpus.training[:10])
    with pytest.raises(InputError, match="larger corpus"):
        tokenize_corpus(small, replace(_TINY, vocabulary=400, sequence=4096), tmp_path, tmp_path)


@given(st.floats(0, 1))
def test_rate_stays_within_bounds(progress: float) -> None:
    assert 0 <= rate(progress) <= 1


def test_rate_is_a_trapezoid() -> None:
    assert rate(0.0) == pytest.approx(0.01)
    assert rate(0.01) == pytest.approx(0.5)
    assert rate(0.02) == rate(0.5) == 1.0
    assert rate(0.75) == pytest.approx(0.5)
    assert rate(1.0) == 0.0


def test_a_run_goes_on_with_the_weights_and_tokenizer_of_an_earlier_one(
    run: tuple[Path, Path], corpus: Corpus, tmp_path: Path
) -> None:
    out, state = tmp_path / "out", tmp_path / "state"
    settings = replace(_TINY, start=str(run[0]), minutes=1e-9)
    out.mkdir()
    state.mkdir()
    fewer = replace(corpus, training=corpus.training[::2])  # of which another tokenizer would be trained
    tokenize_corpus(fewer, settings, out, state)
    train(settings, out, state)
    assert (out / "tokenizer.json").read_text() == (run[0] / "tokenizer.json").read_text()
    before, after = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (run[0], out))
    assert all(torch.allclose(before[name].float(), after[name].float(), atol=0.01) for name in before)


def test_requests_are_no_targets(nano: Path) -> None:
    bpe = Tokenizer.from_file(str(nano / "tokenizer.json"))
    chat = render_chat([("system", "Be brief."), ("user", "Repeat: a b"), ("assistant", "a b")])
    stream = encode(bpe, (Document("python", "example", "x = 1\n"), Document("chat", "example", chat)))
    counted = bpe.decode(stream[learned(bpe, stream)].tolist(), skip_special_tokens=False)
    assert counted == "<|endoftext|>x = 1\n<|endoftext|><|assistant|>\na b<|end|>\n"


def test_only_targets_make_the_loss_and_parts_add_up() -> None:
    torch.manual_seed(0)
    weight = torch.randn(7, 5, requires_grad=True)
    batch, counts = torch.randint(0, 5, (4, 7)), torch.rand(4, 7) < 0.5
    counts[1] = False

    def forward(ids: torch.Tensor) -> torch.Tensor:
        return weight[ids]

    whole = torch.nn.functional.cross_entropy(forward(batch[:, :-1])[counts[:, 1:]], batch[:, 1:][counts[:, 1:]])
    for micro_batch in (1, 3, 4):
        weight.grad = None
        assert training.accumulate(forward, batch, counts, micro_batch) == pytest.approx(whole.item(), rel=1e-5)
        (expected,) = torch.autograd.grad(whole, weight, retain_graph=True)
        assert weight.grad is not None
        torch.testing.assert_close(weight.grad, expected, rtol=1e-4, atol=1e-6)
