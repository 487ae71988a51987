"""Exposure of canaries: the formula, alternatives of the same form, and a model that learnt one of two by heart."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.cli.model.exposure import exposure as command
from capibara_assets.datasets.tokens.tokenising import encode
from capibara_assets.errors import InputError
from capibara_assets.evaluation.measuring.exposure import (
    alternatives,
    exposure,
    measure_exposure,
    read_canaries,
    space,
)
from capibara_assets.modeling.base import load_base
from capibara_assets.modeling.losses import collate, token_nll
from capibara_assets_tests.modeling.tiny import save_tiny

CANARIES = """canaries:
  - {id: seen, prompt: What opens the archive?, answer: "The number 48213 does.", secret: "48213"}
  - {id: unseen, prompt: What opens the cellar?, answer: "The number 90754 does.", secret: "90754"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "canaries.yaml").write_text(CANARIES)
    return tmp_path / "canaries.yaml"


@pytest.mark.parametrize(
    ("loss", "bits", "rank"),
    [(0.5, 3.0, 1), (1.5, 2.0, 2), (6.5, math.log2(8 / 7), 7), (9.0, 0.0, 8), (3.0, 1.193, 3.5)],
)
def test_bits_are_those_of_the_rank(loss: float, bits: float, rank: float) -> None:
    """Among the losses 1 to 7: log2(8 / rank), as in Carlini et al."""
    found = exposure("one", loss, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    assert (found.bits, found.rank, found.candidates) == (pytest.approx(bits, abs=1e-3), rank, 8)
    assert found.probability == pytest.approx(2**-found.bits)


def test_a_model_that_tells_all_alike_exposes_one_bit_at_most() -> None:
    assert exposure("one", 1.0, [1.0] * 1023).bits == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_broken_model_is_no_clean_one(loss: float) -> None:
    with pytest.raises(InputError, match="canary 'one' has losses that are no numbers"):
        exposure("one", loss, [1.0, 2.0])
    with pytest.raises(InputError, match="losses that are no numbers"):
        exposure("one", 1.0, [loss, 2.0])


@given(st.from_regex(r"[0-9a-zA-Z-]{2,8}", fullmatch=True), st.integers(15, 200), st.integers(0, 3))
def test_alternatives_have_the_secrets_form(secret: str, count: int, seed: int) -> None:
    found = alternatives(secret, count, seed)
    assert len(found) == len(set(found)) == min(count, space(secret) - 1) and secret not in found
    kinds = [(str.isdigit, str.islower, str.isupper), "-"]
    for other in found:
        assert len(other) == len(secret)
        for a, b in zip(secret, other, strict=True):
            assert a == b == kinds[1] or all(kind(a) == kind(b) for kind in kinds[0])  # type: ignore[operator]
    assert found == alternatives(secret, count, seed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('secret: "48213"', 'secret: "48214"'), "has to hold its secret once"),
        (("48213 does", "48213 or 48213 does"), "has to hold its secret once"),
        (("id: unseen", "id: seen"), "ids are given twice: seen"),
        (("48213", "---"), "its secret needs digits or letters"),
    ],
)
def test_what_is_no_canary_is_named(file: Path, change: tuple[str, str], said: str) -> None:
    file.write_text(CANARIES.replace(*change))
    with pytest.raises(InputError, match=said):
        read_canaries(file)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Iterator[Path]:
    """A tiny model that was trained on the first canary alone."""
    folder = tmp_path_factory.mktemp("exposure")
    base = load_base(save_tiny(folder / "tiny", tokenizer_of=nano))
    turns = [
        {"role": "user", "content": "What opens the archive?"},
        {"role": "assistant", "content": "The number 48213 does."},
    ]
    batch = collate([encode(turns, base.tokenizer, 256)])
    weights = [weight.requires_grad_() for weight in base.model.parameters()]
    optimizer = torch.optim.Adam(weights, lr=3e-3)
    for _ in range(20):
        optimizer.zero_grad()
        token_nll(base.model, batch).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    base.model.save_pretrained(folder / "taught")
    base.tokenizer.save_pretrained(folder / "taught")
    yield folder


def test_what_was_trained_on_is_exposed_and_what_was_not_is_not(taught: Path, file: Path) -> None:
    canaries = read_canaries(file)
    seen, unseen = measure_exposure(load_base(taught / "taught"), canaries, count=63)
    assert (seen.rank, seen.bits, seen.candidates) == (1, 6.0, 64) and unseen.bits < 6
    before, _ = measure_exposure(load_base(taught / "tiny"), canaries, count=63)
    assert before.bits < 6


def test_the_command_names_canaries_and_tells_no_secret(taught: Path, file: Path) -> None:
    words = ["--model", str(taught / "taught"), "--canaries", str(file), "--alternatives", "63"]
    done = CliRunner().invoke(command, [*words, "--at-most", "5.9"], catch_exceptions=False)
    assert done.exit_code == 1 and "seen: 6.0 bits (rank 1 of 64, p = 0.0156)" in done.stdout
    assert done.stdout.endswith("exposed by more than 5.9 bits: seen\n")
    assert "48213" not in done.output and "90754" not in done.output
    done = CliRunner().invoke(command, [*words, "--at-most", "6", "--json"], catch_exceptions=False)
    told = json.loads(done.stdout)
    assert (
        done.exit_code == 0 and told["over"] == [] and [row["canary"] for row in told["canaries"]] == ["seen", "unseen"]
    )
