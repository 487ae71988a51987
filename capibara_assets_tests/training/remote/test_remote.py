"""Federated training with clients behind a link: the simulation's adapter to the bit, and what a server refuses."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.training.remote.client import OwnMaterials, train_round
from capibara_assets.training.remote.exchange import LEVELS, Answers, ClientTask, packed, unpacked
from capibara_assets.training.remote.server import serve_training
from capibara_assets.training.strategies.changes import clipped_for_sum, flattened, length, shaped
from capibara_assets.training.strategies.privacy import privacy_problems
from capibara_assets_tests.training.remote.parties import PRIVATE, Parties, chat, save_parties


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Parties:
    """To be copied only."""
    return save_parties(tmp_path_factory.mktemp("parties"), tiny_folder)


@pytest.fixture
def parties(tmp_path: Path, saved: Parties) -> Parties:
    """Files of its own for each test."""
    for file in saved.folder.glob("*.jsonl"):
        shutil.copy(file, tmp_path)
    return replace(saved, folder=tmp_path)


@dataclass
class DirectLink:
    """A link without a network: each client trains here, from the bytes that would have been sent.

    Attributes:
        damage: client -> what becomes of its weights on the way; None: it does not answer.
    """

    parties: Parties
    sums: bool = False
    damage: Mapping[str, Callable[[bytes], bytes | None]] = field(default_factory=dict)
    asked: list[tuple[int, str]] = field(default_factory=list)

    def trained_by(self, clients: int) -> str:
        return f"direct, {clients} clients"

    def ask(self, tasks: Mapping[str, ClientTask], weights: bytes, validation: bytes) -> Answers:
        figures, sent, vectors = {}, {}, []
        for name, task in tasks.items():
            self.asked.append((task.round, name))
            travelled = ClientTask.model_validate_json(task.model_dump_json())
            result = train_round(travelled, weights, validation, self.parties.own(name))
            answer = self.damage.get(name, lambda data: data)(result.weights)
            if answer is not None:
                figures[name], sent[name] = result.figures.model_dump_json(), answer
                if self.sums:
                    vectors.append(result.clipped())
        return Answers(figures, {} if self.sums else sent, total=np.sum(vectors, axis=0) if vectors else None)


def trained(parties: Parties, link: DirectLink, least: int = 1, **strategy: Any) -> tuple[Path, list[str]]:
    said: list[str] = []
    options = parties.options("remote", **strategy)
    return serve_training(options, link, least, said.append).folder, said


def weights_of(folder: Path) -> bytes:
    return (folder / "adapter_model.safetensors").read_bytes()


def manifest_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return found


@pytest.mark.parametrize(
    "strategy",
    [
        {"privacy": PRIVATE},
        pytest.param({}, marks=pytest.mark.extended),
        pytest.param({"trained": "factors"}, marks=pytest.mark.extended),
        pytest.param({"trained": "scales", "server": {"optimizer": "adam"}}, marks=pytest.mark.extended),
    ],
    ids=["private", "b_only", "factors", "adam"],
)
def test_clients_behind_a_link_train_the_simulations_adapter(parties: Parties, strategy: dict[str, Any]) -> None:
    expected, (folder, _) = parties.simulated(**strategy), trained(parties, DirectLink(parties), **strategy)
    assert weights_of(folder) == weights_of(expected)
    ours, theirs = manifest_of(folder), manifest_of(expected)
    assert (ours["validation_loss"], ours["base_validation_loss"], ours["steps"], ours["supervised_tokens"]) == (
        theirs["validation_loss"], theirs["base_validation_loss"], theirs["steps"], theirs["supervised_tokens"],
    )  # fmt: skip
    assert theirs["published"]["trained_by"] == "simulated in one process"
    assert ours["published"]["trained_by"] == "direct, 2 clients"
    if strategy.get("privacy"):
        document = ours["published"]["privacy"]
        assert not privacy_problems(document) and document["trained_by"] == "direct, 2 clients"


def test_a_client_that_does_not_answer_is_named_and_the_round_goes_on(parties: Parties) -> None:
    folder, said = trained(parties, DirectLink(parties, damage={"client-1": lambda data: None}))
    assert "round 1: 1 of 2 clients answered; without client-1 (no answer)" in said
    rounds = manifest_of(folder)["published"]["rounds"]
    assert [list(one["clients"]) for one in rounds] == [["client-0"], ["client-0"]]
    warnings = [line for line in (folder / "events.jsonl").read_text().splitlines() if "without client-1" in line]
    assert len(warnings) == 2


def test_with_too_few_answers_it_ends_in_words_and_goes_on_at_that_round(parties: Parties) -> None:
    class Second(DirectLink):
        """Loses client-1 in the second round."""

        def ask(self, tasks: Mapping[str, ClientTask], weights: bytes, validation: bytes) -> Answers:
            lost = {"client-1": lambda data: None} if next(iter(tasks.values())).round == 2 else {}
            self.damage = lost
            return super().ask(tasks, weights, validation)

    with pytest.raises(InputError, match=r"round 2: 1 of 2 .* At least 2 have to.* goes on at round 2"):
        trained(parties, Second(parties), least=2, privacy=PRIVATE)
    again = DirectLink(parties)
    folder, _ = trained(parties, again, least=2, privacy=PRIVATE)
    assert again.asked == [(2, "client-0"), (2, "client-1")]
    assert "client-1" not in (folder / "events.jsonl").read_text()  # who took part is not told under privacy
    whole = serve_training(parties.options("whole", privacy=PRIVATE), DirectLink(parties), 2, lambda line: None)
    assert weights_of(folder) == weights_of(whole.folder)


@pytest.mark.parametrize("what", ["no weights", "shapes", "infinite"])
def test_an_answer_that_cannot_be_used_counts_as_none(parties: Parties, what: str) -> None:
    def damaged(data: bytes) -> bytes:
        tensors = unpacked(data)
        first = next(iter(tensors))
        tensors[first] = tensors[first][:1] if what == "shapes" else torch.full_like(tensors[first], float("inf"))
        return b"no weights" if what == "no weights" else packed(tensors)

    link = DirectLink(parties, damage={"client-0": damaged})
    with pytest.raises(InputError, match=r"round 1: 1 of 2 .* client-0 \(its answer cannot be used"):
        trained(parties, link, least=2, rounds=1)


def test_a_sum_of_clipped_changes_gives_the_private_adapter(parties: Parties) -> None:
    """Clients clip, the server sees their sum alone: the mean, noise and accountant are the same."""
    choice: dict[str, Any] = {"privacy": PRIVATE | {"clip": 0.01}, "rounds": 1}
    expected = serve_training(parties.options("each", **choice), DirectLink(parties), 2, lambda line: None)
    found, _ = trained(parties, DirectLink(parties, sums=True), least=2, **choice)
    ours, theirs = read_adapter(found), read_adapter(expected.folder)
    for module in theirs.modules:  # b_only: the clip was shortened by what rounding to levels may add
        torch.testing.assert_close(ours.b(module), theirs.b(module), rtol=0, atol=0.01 * 1e-3)
        assert torch.equal(ours.a(module), theirs.a(module))
    with pytest.raises(InputError, match="secure aggregation adds clipped changes: set privacy"):
        serve_training(parties.options("open"), DirectLink(parties, sums=True), 2, lambda line: None)


def test_the_server_writes_nothing_of_a_clients_examples(parties: Parties) -> None:
    canary = "quokka-canary-4711"
    own = parties.data("client-0")
    own.write_text(own.read_text() + json.dumps(chat(77, f"Tell the {canary} by")) + "\n")
    folder, said = trained(parties, DirectLink(parties), rounds=1)
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.parent.name == ".capibara" for path in written)
    assert not [path for path in written if canary.encode() in path.read_bytes()] and canary not in "".join(said)
    tables = list((parties.folder / "work-client-0").rglob("examples-*.parquet"))
    assert any(canary in text for table in tables for text in pl.read_parquet(table)["messages"])  # it was trained on


def test_a_task_for_another_client_or_base_is_refused(parties: Parties, nano: Path) -> None:
    taken: list[ClientTask] = []

    class Keeps(DirectLink):
        def ask(self, tasks: Mapping[str, ClientTask], weights: bytes, validation: bytes) -> Answers:
            taken.extend(tasks.values())
            raise InputError("enough")

    with pytest.raises(InputError, match="enough"):
        trained(parties, Keeps(parties))
    with pytest.raises(InputError, match="the task is for client-0, this is client-1"):
        train_round(taken[0], b"", b"", parties.own("client-1"))
    other = OwnMaterials("client-0", (parties.data("client-0"),), str(nano), parties.folder / "work")
    with pytest.raises(InputError, match="the server trains"):
        train_round(taken[0], b"", b"", other)


def test_a_rounded_change_is_never_longer_than_the_clip() -> None:
    generator = np.random.default_rng(0)
    for size, clip in ((3, 1.0), (1000, 0.5), (50_000, 8.0)):
        change = {"b": generator.standard_normal(size), "a": generator.standard_normal((size, 2))}
        vector = clipped_for_sum(change, clip, LEVELS)
        step = 2 * clip / LEVELS
        assert np.linalg.norm(vector + np.sign(vector) * step) <= clip
        assert np.linalg.norm(vector) == pytest.approx(clip, rel=0.01)
    small = {name: value * 1e-6 for name, value in change.items()}
    again = shaped(clipped_for_sum(small, 8.0, LEVELS), small)
    assert length({name: again[name] - small[name] for name in small}) < 1e-12
    assert flattened(small).size == 150_000
    with pytest.raises(InputError, match="are too many for 16 levels"):
        clipped_for_sum(change, 1.0, 16)
