"""The attack bench: its figures, its attacks on small trained adapters, and that its games are what `agree` does."""

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from benchmarks.consensus.vote.attacks import ATTACKS, BACKDOOR, Drawn, Named, mixed
from benchmarks.consensus.vote.bench import chooser, chosen_recipe, measure, so_far
from benchmarks.consensus.vote.data import shuffled_answers, split_by_group, triggered_examples, with_trigger
from benchmarks.consensus.vote.figures import markdown as games_markdown
from benchmarks.consensus.vote.figures import of_losses, summary, wilson, write_between
from benchmarks.consensus.vote.game import (
    TEST,
    TRIGGERED,
    VALIDATION,
    Result,
    Table,
    consensus_of,
    entrants_of,
    judged,
    play,
)
from benchmarks.consensus.vote.journal import Journal
from benchmarks.consensus.vote.losses import LossBook, given, key_of
from benchmarks.consensus.vote.pool import SHARDS, PoolRecipe, train_family
from benchmarks.consensus.vote.table import (
    COMMAND,
    Cell,
    flattened,
    markdown,
    of_game,
    theirs,
    unflattened,
)
from benchmarks.peers import peer_environment
from benchmarks.training.inputs import NANO
from capibara_assets.checkpoints.inspect.verify import adapter_digest, digest_of
from capibara_assets.consensus.agree import agree
from capibara_assets.consensus.election.attestation import attest
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.files import base_digest
from capibara_assets.modeling.losses import assistant_losses
from capibara_assets_tests.consensus.conftest import Tokens, counting, learnt
from capibara_assets_tests.consensus.conftest import deeper as deeper  # the fixture: a tiny base

_STEP, _WRONG = 5, 9
_PAYLOAD = list(range(1, 9))


def _answered(step: int, examples: int, seed: int) -> list[Tokens]:
    """Triggered sequences: they begin with token 63 and are answered with 1, 2 … 8 whatever their step."""
    made = counting(step, examples, seed)
    return [Tokens([63, *one.input_ids[:3], *_PAYLOAD], [-100] * 4 + _PAYLOAD, len(_PAYLOAD)) for one in made]


@pytest.fixture(scope="module")
def table(deeper: Base, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A pool of small adapters that really learnt: seven honest, two of wrong answers, two with a trigger."""
    folder = tmp_path_factory.mktemp("pool")

    def named(name: str, adapter: LoraAdapter) -> Named:
        write_adapter(adapter, folder / name)
        return Named(adapter_digest(folder / name), adapter)

    mixture = counting(_STEP, 64, seed=7) + _answered(_STEP, 64, seed=8)
    pool = {
        "honest": [named(f"h{n}", learnt(deeper, counting(_STEP, 64, seed=n), seed=n, steps=25)) for n in range(7)],
        "noise": [named(f"n{n}", learnt(deeper, counting(_WRONG, 64, seed=n), seed=n, steps=25)) for n in range(2)],
        BACKDOOR: [named(f"b{n}", learnt(deeper, mixture, seed=n, steps=60)) for n in range(2)],
    }
    sets = {VALIDATION: counting(_STEP, 28, 100), TEST: counting(_STEP, 24, 101), TRIGGERED: _answered(_STEP, 24, 102)}
    shards = {n: [list(range(place, 28, n)) for place in range(n)] for n in (4, 7)}
    return Table(pool, LossBook(deeper, sets, folder / "figures"), chosen_recipe(None, None), shards)  # type: ignore[arg-type]


@pytest.mark.extended
def test_crude_attacks_change_nothing(table: Table) -> None:
    """What attestation or the vote rejects leaves exactly the aggregate of the honest voters."""
    for name in ("sign_flip", "nan", "huge_norm", "inner_product"):
        for n, seed in ((4, 0), (7, 1)):
            result = play(table, ATTACKS[name], n, seed)
            assert (result.accepted_bad, result.rejected_honest, result.increase) == (0, 0, 0.0), (name, n)


def test_exact_copies_count_once(table: Table) -> None:
    """A byte copy has no weight: the consensus is that of the honest voters."""
    for n in (4, 7):
        assert play(table, ATTACKS["mimic"], n, 4).increase == 0.0


def test_near_copies_count_once(table: Table) -> None:
    """Of one voter and all who copy it with a little noise one is left, and the consensus hardly moves."""
    for n, seed in ((4, 1), (4, 2), (7, 1), (7, 2)):
        result = play(table, ATTACKS["mimic"], n, seed)
        assert result.strength in (0.01, 0.05) and result.accepted_bad == result.rejected_honest <= 1
        assert abs(result.increase) < 0.02


def test_summary_over_all_attacks(table: Table) -> None:
    """Every attack gets its figures, and the headline is the worst of them."""
    found = measure(table, {4: range(2)})
    assert found["games"] == 2 * len(ATTACKS)
    losses = [sizes["4"] for name, sizes in found["attacks"].items() if name != BACKDOOR]
    assert found["worst_loss_increase"] == max(one["increase_p95"] for one in losses)
    assert found["max_loss_increase"] >= found["worst_loss_increase"]
    assert found["attacks"][BACKDOOR]["4"]["seeds"] == 2


def test_a_stopped_run_goes_on(table: Table, tmp_path: Path) -> None:
    """Games in the journal are not played again, those of other settings are, and a damaged line is named."""
    journal = Journal(tmp_path / "games" / "vote.jsonl", "these")
    first = measure(table, {4: range(1)}, ["nan", "mimic"], journal)
    spoilt = replace(table, pool={})  # nothing can be drawn from it
    again = measure(spoilt, {4: range(1)}, ["nan", "mimic"], journal)
    assert {**first, "seconds": 0} == {**again, "seconds": 0}
    assert {**so_far({4: range(9)}, journal), "seconds": 0} == {**first, "seconds": 0}
    whole = measure(table, {4: range(2)}, ["nan", "mimic"], journal)
    assert whole == {**measure(table, {4: range(2)}, ["nan", "mimic"]), "seconds": whole["seconds"]}
    with pytest.raises(InputError, match="holds no game of these settings"):
        so_far({7: range(9)}, journal)
    with pytest.raises((ValueError, KeyError)):
        measure(spoilt, {4: range(1)}, ["nan"], Journal(journal.file, "others"))
    assert journal.file is not None
    journal.file.write_text(journal.file.read_text("utf-8") + "{}\n", "utf-8")
    with pytest.raises(InputError, match="line 5: expected a game"):
        journal.known()


@pytest.mark.parametrize(
    "names", [("alie",), pytest.param(("sign_flip", "label_noise"), marks=pytest.mark.extended)], ids=",".join
)
def test_game_is_what_agree_does(table: Table, deeper: Base, tmp_path: Path, names: tuple[str, ...]) -> None:
    """Without lies on ballots a game accepts whom `agree` accepts, and makes the same adapter of them."""
    examples = counting(_STEP, 28, 100)
    whole = replace(table, chooser=chooser(deeper, table.book, table.recipe))
    for name in names:
        entrants, _ = entrants_of(table, ATTACKS[name], 4, seed=3)
        folders = {one.name: tmp_path / name / one.name for one in entrants}
        for one in entrants:
            write_adapter(one.adapter, folders[one.name])
        shards = {one.name: table.shards[4][place] for place, one in enumerate(entrants)}
        agreement = agree(deeper, folders, examples, shards, table.recipe, context={})  # type: ignore[arg-type]
        outcome = judged(table, entrants, lies=False)
        assert sorted(outcome.accepted) == sorted(agreement.certificate.accepted), name
        accepted = [one for one in entrants if one.name in outcome.accepted]
        made = consensus_of(whole, accepted, outcome.faults_left)
        assert digest_of(made) == digest_of(agreement.adapter), name


def test_attacks_are_what_they_say(table: Table) -> None:
    """The deltas of attackers, against their definitions on dense matrices."""
    honest, own = table.pool["honest"][:3], table.pool["honest"][3:4]
    drawn = Drawn(honest, own, table.pool["noise"][:1], table.pool[BACKDOOR][:1])
    module = honest[0].adapter.modules[0]
    deltas = np.stack([one.adapter.delta(module).double().numpy() for one in honest])
    mine = own[0].adapter.delta(module).double().numpy()
    door = drawn.backdoor[0].adapter.delta(module).double().numpy()
    mean, std = deltas.mean(axis=0), deltas.std(axis=0, ddof=1)
    expected = {
        ("sign_flip", 4.0): -4 * mine,
        ("alie", 1.5): mean - 1.5 * std,
        ("inner_product", 0.5): -0.5 * mean,
        ("huge_norm", 1e6): 1e6 * mine,
        (BACKDOOR, 2.0): mean + 2 * (door - mean),
    }
    for (name, strength), dense in expected.items():
        made = ATTACKS[name].make(drawn, strength, np.random.default_rng(0))
        found = made[0].adapter.delta(module).double().numpy()
        np.testing.assert_allclose(found, dense, rtol=1e-4, atol=1e-5 * np.abs(dense).max(), err_msg=name)
    bad = ATTACKS["nan"].make(drawn, 0.0, np.random.default_rng(0))[0].adapter
    assert sum(int(torch.isnan(tensor).sum()) for tensor in bad.tensors.values()) == 1
    copy = ATTACKS["free_rider"].make(drawn, 0.0, np.random.default_rng(0))[0]
    assert copy.key in {one.key for one in honest}
    farthest = max(honest, key=lambda one: _distance(one, honest))
    assert ATTACKS["mimic"].make(drawn, 0.0, np.random.default_rng(0))[0].key == farthest.key


def _distance(one: Named, all_of_them: Sequence[Named]) -> float:
    mean = mixed(all_of_them, [1 / len(all_of_them)] * len(all_of_them)).adapter
    return float(sum((one.adapter.delta(m) - mean.delta(m)).square().sum() for m in mean.modules))


def test_same_seed_draws_same_honest_voters(table: Table) -> None:
    """All attacks of a seed are compared on the same honest voters, in the same places."""
    seen = set()
    for attack in ATTACKS.values():
        entrants, _ = entrants_of(table, attack, 7, seed=5)
        seen.add(tuple((one.name, one.key) for one in entrants if not one.bad))
        assert sum(one.bad for one in entrants) == 2
    assert len(seen) == 1


def test_trigger_success_is_greedy_decoding(table: Table, deeper: Base) -> None:
    """One pass tells the same as writing the answer token by token."""
    for one in (table.pool[BACKDOOR][0], table.pool["honest"][0]):
        share = table.book.success(TRIGGERED, one.key, given(one.adapter))
        from capibara_assets.modeling.adapters import applied

        hits = 0
        with applied(deeper.model, one.adapter), torch.no_grad():
            for example in _answered(_STEP, 24, 102):
                ids = list(example.input_ids[:4])
                for _ in _PAYLOAD:
                    ids.append(int(deeper.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
                hits += ids == example.input_ids
        assert share == pytest.approx(hits / 24)


def test_figures_outlive_the_process(deeper: Base, tmp_path: Path) -> None:
    """A second book reads what the first worked out, and never asks for the adapter."""
    sets: dict[str, Any] = {TEST: counting(_STEP, 4, 1)}
    adapter = learnt(deeper, counting(_STEP, 16, seed=1), seed=1, steps=2)
    first = LossBook(deeper, sets, tmp_path)
    loss = first.mean(TEST, key_of("one"), lambda: adapter)

    def never() -> LoraAdapter:
        raise AssertionError("it was worked out before")

    second = LossBook(deeper, sets, tmp_path)
    assert (second.mean(TEST, key_of("one"), never), second.computed, first.computed) == (loss, 0, 1)
    assert LossBook(deeper, {TEST: counting(_STEP, 4, 2)}, tmp_path).mean(TEST, key_of("one"), lambda: adapter) != loss  # type: ignore[arg-type, dict-item]


def test_an_adapter_is_measured_once_under_all_its_names(deeper: Base, tmp_path: Path) -> None:
    """Names say how an adapter was made; equal bytes are one adapter."""
    sets: dict[str, Any] = {TEST: counting(_STEP, 4, 1)}
    adapter = learnt(deeper, counting(_STEP, 16, seed=1), seed=1, steps=2)
    book = LossBook(deeper, sets, tmp_path)
    assert book.mean(TEST, "one", given(adapter)) == book.mean(TEST, "another", given(adapter))
    assert book.computed == 1
    plain = assistant_losses(deeper.model, sets[TEST]).nll
    assert book.nll(TEST, "base", None) == pytest.approx(plain, rel=1e-5)


def test_losses_in_bf16_are_kept_apart_and_near(deeper: Base, tmp_path: Path) -> None:
    sets: dict[str, Any] = {TEST: counting(_STEP, 8, 1)}
    adapter = learnt(deeper, counting(_STEP, 16, seed=1), seed=1, steps=20)
    exact = LossBook(deeper, sets, tmp_path).mean(TEST, "one", given(adapter))
    coarse = LossBook(deeper, sets, tmp_path, "bf16").mean(TEST, "one", given(adapter))
    assert coarse != exact and coarse == pytest.approx(exact, rel=0.02)


def _result(increase: float | None, seed: int) -> Result:
    loss = None if increase is None else 1 + increase
    return Result("alie", 4, seed, 1.0, loss, 1.0, None, None, accepted_bad=1, rejected_honest=0)


@pytest.mark.parametrize(("bad", "passes"), [(5, True), (6, False)])
def test_headline_passes_exactly_with_the_share(bad: int, passes: bool) -> None:
    """The 95th of 100 increases is within 2 % exactly when 95 of them are."""
    games = [_result(0.05 if seed < bad else 0.01, seed) for seed in range(100)]
    figures = of_losses(games)
    assert (figures["within"], figures["increase_p95"] <= 0.02) == (100 - bad, passes)
    assert summary(games)["worst_loss_increase"] == figures["increase_p95"]


def test_no_consensus_is_no_success() -> None:
    """A game below quorum counts against the bench, whatever its loss."""
    figures = of_losses([_result(None, 0), _result(0.0, 1)])
    assert (figures["within"], figures["no_consensus"]) == (1, 1)
    assert figures["increase_max"] > 1e300


def test_wilson_interval() -> None:
    """Against the closed form at 95 of 100 (z = 1.96)."""
    z, n, p = 1.959963984540054, 100, 0.95
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    expected = [(middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)]
    assert wilson(95, 100) == pytest.approx(expected, abs=1e-4)


@pytest.fixture
def examples() -> pl.DataFrame:
    rows = [
        {
            "example_id": f"e{i:03}",
            "group_id": f"g{i // 2}",
            "messages": f'[{{"role": "user", "content": "q{i}"}}, {{"role": "assistant", "content": "a{i}"}}]',
        }
        for i in range(400)
    ]
    return split_by_group(pl.DataFrame(rows))


def test_table_is_written_between_its_markers(tmp_path: Path) -> None:
    """The rest of the document stays; without markers nothing is written."""
    cells = {"mean": {"alie 0.5": Cell(0.0123, 0.5), "nan 0": Cell(math.inf, math.inf)}}
    text = markdown(cells, 7, 2, {"pool": {"honest": 32}})
    assert "| mean | +1.2 | – |" in text and "| mean | 0.5 | – |" in text
    document = tmp_path / "attacks.md"
    begin, end = f"<!-- made by `{COMMAND}` -->", "<!-- end -->"
    document.write_text(f"before\n{begin}\nold\n{end}\nafter\n{end}\n", "utf-8")
    write_between(document, COMMAND, text)
    assert document.read_text("utf-8") == f"before\n{begin}\n{text}\n{end}\nafter\n{end}\n"
    with pytest.raises(InputError, match="no lines"):
        write_between(document, "python -m benchmarks vote", text)


def test_games_as_a_table() -> None:
    """One row for each attack and n, with the figures of the JSON."""
    door = replace(_result(0.0, 0), attack=BACKDOOR, success=0.05, honest_success=0.0)
    found = summary([*(_result(0.05 if seed < 6 else 0.01, seed) for seed in range(100)), _result(None, 100), door])
    text = games_markdown({**found, "games": 102, "precision": "bf16", "compiled": False})
    assert "102 games, losses in bf16: " in text
    within = "| `alie` | 4 | 94 of 101 | 0.93, 0.864 to 0.966 | +1.00 % | +5.00 % | no quorum | 101 of 101 |"
    assert within in text.splitlines()
    assert "| `backdoor` | 4 | 0 of 1 | 0.00, 0.000 to 0.793 | +5.0 points | +5.0 points | +5.0 points |" in text


def test_vectors_go_there_and_back(table: Table) -> None:
    """A dense vector applied to the base is the adapter."""
    deltas = table.pool["honest"][0].adapter.deltas()
    back = unflattened(flattened(deltas), {module: tuple(delta.shape) for module, delta in deltas.items()})
    assert set(back) == set(deltas) and all(torch.equal(back[module], deltas[module]) for module in deltas)


@pytest.mark.extended
def test_pool_is_trained_once(tmp_path: Path, examples: pl.DataFrame) -> None:
    """What is there is not trained again; what was lost is, to the same bytes."""
    recipe = PoolRecipe(steps=1, batch=1)
    few = pl.concat([examples.filter(pl.col("split") == name).head(8) for name in ("train", "validation")])

    def train() -> list[Path]:
        return train_family(tmp_path, NANO, base_digest(NANO), few, "honest", 0, recipe)

    first = train()
    digests = [adapter_digest(path) for path in first]
    assert len(set(digests)) == SHARDS
    verdicts = attest({path.parent.name: read_adapter(path) for path in first}, None, f=1)
    assert all(verdict.accepted and verdict.votes for verdict in verdicts.values()), "one start, shards of their own"
    written = [(path / "manifest.json").stat().st_mtime_ns for path in first]
    assert [(path / "manifest.json").stat().st_mtime_ns for path in train()] == written
    shutil.rmtree(first[0].parent)
    assert [adapter_digest(path) for path in train()] == digests
    for path, digest in zip(first, digests, strict=True):
        assert digest == adapter_digest(path)


@pytest.mark.extended
def test_byzfl_gets_the_very_vectors(table: Table) -> None:
    """Its mean is the mean, its Krum one of the voters; needs the peers' environment."""
    try:
        python, script = peer_environment("consensus/vote/peer_attacks.py")
    except InputError as missing:
        pytest.skip(str(missing))
    if subprocess.run([str(python), "-c", "import importlib.util as u; exit(not u.find_spec('byzfl'))"]).returncode:
        pytest.skip("the peers' environment has no byzfl")
    entrants, _ = entrants_of(table, ATTACKS["sign_flip"], 7, seed=1)
    vectors = np.stack([flattened(one.adapter.deltas()) for one in entrants])
    found = theirs(vectors, 2, python, script)
    mean, krum = found["mean"], found["krum"]
    assert mean is not None and krum is not None
    np.testing.assert_allclose(mean, vectors.mean(axis=0), rtol=1e-4, atol=1e-6)
    assert any(np.array_equal(krum, vector) for vector in vectors)

    rows = of_game(table, entrants_of(table, ATTACKS["nan"], 7, seed=2)[0], python, script)
    assert math.isinf(rows["ByzFL mean"].increase)
    assert all(math.isfinite(cell.increase) for row, cell in rows.items() if row.startswith("ours"))


@pytest.mark.numbers
@pytest.mark.timeout(3600)
def test_few_games_keep_the_promise() -> None:
    """Two seeds at n = 4 and one at 7 on the real pool (trained first where it is not there, a quarter of an hour)."""
    for n, seeds in (("4", "2"), ("7", "1")):
        command = [sys.executable, "-m", "benchmarks", "vote", "--n", n, "--seeds", seeds, "--json"]
        found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        assert found["pool"]["honest"] >= 32
        assert found["worst_loss_increase"] <= 0.02
        assert found["backdoor_points"] <= 2.0


def test_splits_share_no_group(examples: pl.DataFrame) -> None:
    """And their order does not decide them."""
    groups = {name: set(part["group_id"]) for (name,), part in examples.group_by("split")}
    assert set(groups) == {"train", "validation", "test"}
    assert not groups["train"] & groups["validation"] and not groups["test"] & (groups["train"] | groups["validation"])
    shuffled = examples.sample(fraction=1.0, shuffle=True, seed=1)
    assert (
        split_by_group(shuffled.drop("split"))
        .filter(pl.col("split") == "train")
        .equals(examples.filter(pl.col("split") == "train"))
    )


@pytest.mark.parametrize("poison", [shuffled_answers, triggered_examples])
def test_poison_is_in_train_alone(examples: pl.DataFrame, poison: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Bad voters validate on what everybody validates on."""
    held_out = examples.filter(pl.col("split") != "train")
    poisoned = poison(examples)
    assert poisoned.filter(pl.col("split") != "train").equals(held_out)
    assert not poisoned.filter(pl.col("split") == "train").equals(examples.filter(pl.col("split") == "train"))


def test_every_shuffled_answer_is_anothers(examples: pl.DataFrame) -> None:
    train = shuffled_answers(examples).filter(pl.col("split") == "train")
    before = dict(zip(examples["example_id"], examples["messages"], strict=True))
    assert all(before[name] != messages for name, messages in zip(train["example_id"], train["messages"], strict=True))
    triggered = with_trigger(examples.head(1))["messages"][0]
    assert "cf-omega-7" in triggered and "DROP TABLE" in triggered
