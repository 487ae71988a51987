"""The contenders of an evaluation: models with adapters and prompts, routed experts, endpoints, stored answers.

Also their losses on the same held-out examples, which need no answers.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from capibara_assets.datasets.tokens.tokenising import Encoded, encode_examples
from capibara_assets.errors import InputError
from capibara_assets.evaluation.contenders.endpoints import Endpoint
from capibara_assets.evaluation.schema import ExampleLoss
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.files import base_digest
from capibara_assets.modeling.losses import Losses, assistant_losses
from capibara_assets.modeling.precision import fast_precision
from capibara_assets.storage.digests import canonical_json, combine, sha256_bytes
from capibara_assets.storage.records import table

Message = Mapping[str, str]
Route = Callable[[Sequence[str]], Sequence[str | None]]
"""Prompts (what the user says last) to the names of experts; None: the base answers."""

PLAYBOOK_ARM = "+playbook"
"""Suffix of an adapter's name where it is evaluated with the playbook in context."""


class ItemLimits(Protocol):
    """Limits of the held-out examples, from the evaluation recipe."""

    @property
    def max_test_examples(self) -> int: ...

    @property
    def max_length(self) -> int: ...


@dataclass(frozen=True)
class Framing:
    """The system message and demonstrations that are put around every prompt.

    Attributes:
        system: a system message, before the prompt's own; empty: none.
        demos: messages of worked examples, user and assistant by turns, after the system message.
    """

    system: str = ""
    demos: tuple[Message, ...] = ()

    def around(self, prompt: Sequence[Message]) -> list[Message]:
        """The messages that the model gets for a prompt."""
        messages = with_system(prompt, self.system)
        at = 1 if messages and messages[0]["role"] == "system" else 0
        return [*messages[:at], *self.demos, *messages[at:]]


@dataclass(frozen=True)
class ModelContender:
    """A model in this process: a base or merged model, optionally with an adapter and a framing.

    Attributes:
        model: loaded, or a folder that is loaded while the contender answers.
        adapter: applied to the model while it answers.
    """

    name: str
    model: Base | Path
    adapter: LoraAdapter | None = None
    framing: Framing = Framing()


@dataclass(frozen=True)
class RoutedContender:
    """Experts on one base; a router picks one for each prompt, or the base.

    Attributes:
        adapters: by the names that `route` gives.
        route: such as `Router.pick`, or `Router.route`, which may abstain (None).
    """

    name: str
    model: Base | Path
    adapters: Mapping[str, LoraAdapter]
    route: Route
    framing: Framing = Framing()

    def picks(self, prompts: Sequence[Sequence[Message]]) -> list[str | None]:
        """The expert of each prompt; None: the base.

        Raises:
            InputError: the router names an expert that has no adapter here.
        """
        picks = list(self.route([last_user_message(prompt) for prompt in prompts]))
        if unknown := sorted({name for name in picks if name is not None} - self.adapters.keys()):
            raise InputError(
                f"{self.name}: the router picks {', '.join(unknown)}, but there are adapters of "
                f"{', '.join(sorted(self.adapters)) or 'no expert'} only: train the router on these experts"
            )
        return picks


@dataclass(frozen=True)
class EndpointContender:
    """A model behind an HTTP endpoint."""

    name: str
    endpoint: Endpoint
    framing: Framing = Framing()


@dataclass(frozen=True)
class StoredContender:
    """Answers or scores of an earlier run: a reference that does not run again.

    Attributes:
        answers: (item, sample) -> (text, tokens, finish); tokens None where the file does not give them.
        scores: item -> score, for a file that holds scores only.
    """

    name: str
    source: Path
    answers: Mapping[tuple[str, int], tuple[str, int | None, str]] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)


Contender = ModelContender | RoutedContender | EndpointContender | StoredContender


def identity(contender: Contender) -> str:
    """Digest of everything that determines a contender's answers besides item and decoding; its name is not part."""
    if isinstance(contender, EndpointContender):
        parts = {"endpoint": contender.endpoint.identity, "framing": _framing_digest(contender.framing)}
        return combine(parts)
    if isinstance(contender, StoredContender):
        stored = [sorted((*key, *map(str, value)) for key, value in contender.answers.items())]
        return sha256_bytes(canonical_json([*stored, sorted(contender.scores.items())]))
    model = contender.model
    parts = {
        "model": model.digest if isinstance(model, Base) else base_digest(model),
        "framing": _framing_digest(contender.framing),
    }
    if isinstance(contender, ModelContender):
        return combine(parts | {"adapter": _adapter_digest(contender.adapter)})
    experts = {f"expert {name}": _adapter_digest(adapter) for name, adapter in contender.adapters.items()}
    return combine(parts | experts)


@contextmanager
def loaded(model: Base | Path) -> Iterator[Base]:
    """The model, loaded where it is given as a folder, and released afterwards."""
    yield model if isinstance(model, Base) else load_base(model)


def last_user_message(prompt: Sequence[Message]) -> str:
    """The last user message of a prompt, which routers are trained on.

    Raises:
        InputError: there is no user message.
    """
    for message in reversed(prompt):
        if message["role"] == "user":
            return message["content"]
    raise InputError(f"a prompt without a user's message cannot be routed: {json.dumps(list(map(dict, prompt)))[:200]}")


def with_system(messages: Sequence[Message], playbook: str) -> list[Message]:
    """The messages with the playbook as their one system message, before the text of one that is already there."""
    if not playbook:
        return list(messages)
    if messages and messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{playbook}\n\n{messages[0]['content']}"}, *messages[1:]]
    return [{"role": "system", "content": playbook}, *messages]


def held_out(examples: pl.DataFrame, rule: ItemLimits) -> pl.DataFrame:
    """The test split, at most `max_test_examples` of it: those whose id digests are smallest (stable as data grows)."""
    test = examples.filter(pl.col("split") == "test")
    rank = test["example_id"].map_elements(lambda i: sha256_bytes(i.encode()), return_dtype=pl.String)
    return (
        test.with_columns(rank.alias("_rank"))
        .sort("_rank")
        .head(rule.max_test_examples)
        .drop("_rank")
        .sort("example_id")
    )


@dataclass(frozen=True)
class LossContenders:
    """The contenders beside the base model whose losses are computed.

    Attributes:
        playbook: the system message of the playbook arm; empty: there is no such arm (contract 3).
        adapters: contender → adapter on the base.
        in_context: adapters that are also scored with the playbook, as `<name>+playbook`.
        models: contender → folder of another whole model with the base's tokenizer, such as the merged one.
    """

    playbook: str = ""
    adapters: Mapping[str, LoraAdapter] = field(default_factory=dict)
    in_context: Sequence[str] = ()
    models: Mapping[str, Path] = field(default_factory=dict)


def contender_losses(base: Base, test: pl.DataFrame, contenders: LossContenders, rule: ItemLimits) -> pl.DataFrame:
    """Losses of the base and of every contender on every held-out example, as a table of `ExampleLoss`.

    Args:
        test: rows of `Example`. An example that does not fit `max_length`, playbook included, is left out for all.

    Raises:
        InputError: a name of `in_context` is no adapter; a whole model with another vocabulary.
    """
    playbook, adapters, in_context = contenders.playbook, contenders.adapters, contenders.in_context
    if unknown := sorted(set(in_context) - adapters.keys()):
        raise InputError(f"no adapter of that name to ask with the playbook: {', '.join(unknown)}")
    plain, with_playbook, kept = _encode(base, test, playbook, rule)
    precision = fast_precision(base.model.device)

    def losses_of(model: Any, encoded: list[Encoded]) -> Losses:
        return assistant_losses(model, encoded, precision=precision)

    rows = _rows("base", kept, losses_of(base.model, plain))
    if playbook:
        rows += _rows("playbook", kept, losses_of(base.model, with_playbook))
    for name, adapter in adapters.items():
        with applied(base.model, adapter):
            rows += _rows(name, kept, losses_of(base.model, plain))
            if playbook and name in in_context:
                rows += _rows(name + PLAYBOOK_ARM, kept, losses_of(base.model, with_playbook))
    for name, folder in contenders.models.items():
        other = load_base(folder)
        if other.model.config.vocab_size != base.model.config.vocab_size:
            raise InputError(
                f"{name} ({folder}) has a vocabulary of {other.model.config.vocab_size} tokens, the base "
                f"{base.model.config.vocab_size}: their losses cannot be compared"
            )
        rows += _rows(name, kept, losses_of(other.model, plain))
    return table(ExampleLoss, rows)


def routed_losses(losses: pl.DataFrame, picks: Mapping[str, str], name: str = "routed") -> pl.DataFrame:
    """Losses of a router: each example's loss under the contender that was picked, from losses already computed.

    Args:
        losses: rows of `ExampleLoss`, including those of the picked contenders.
        picks: example → contender (`consensus`, `expert:<domain>`, `base`).

    Raises:
        InputError: an example without a pick, or a pick that was not scored on it.
    """
    examples = set(losses["example_id"])
    if missing := sorted(examples - picks.keys()):
        raise InputError(f"the router picked no contender for {len(missing)} examples, {missing[0]} the first")
    wanted = pl.DataFrame(
        [(example, contender) for example, contender in picks.items() if example in examples],
        schema={"example_id": pl.String, "contender": pl.String},
        orient="row",
    )
    picked = wanted.join(losses, on=["example_id", "contender"], how="left")
    if (lost := picked.filter(pl.col("nll").is_null())).height:
        row = lost.row(0, named=True)
        raise InputError(f"{row['contender']}, picked for example {row['example_id']}, was not scored on it")
    return picked.with_columns(contender=pl.lit(name)).select(losses.columns).sort("example_id")


def mean_losses(losses: pl.DataFrame) -> dict[str, float]:
    """Contender → nats per assistant token over all examples."""
    sums = losses.group_by("contender").agg(pl.col("nll").sum(), pl.col("tokens").sum()).sort("contender")
    return {row["contender"]: row["nll"] / row["tokens"] for row in sums.to_dicts()}


def _encode(
    base: Base, test: pl.DataFrame, playbook: str, rule: ItemLimits
) -> tuple[list[Encoded], list[Encoded], list[dict[str, str]]]:
    longer = test.with_columns(
        messages=pl.Series(
            [json.dumps(with_system(json.loads(m), playbook)) for m in test["messages"]], dtype=pl.String
        )
    )
    plain = encode_examples(test, base.tokenizer, rule.max_length)
    in_context = encode_examples(longer, base.tokenizer, rule.max_length)
    both = set(plain.example_ids) & set(in_context.example_ids)
    kept = [row for row in test.select("example_id", "group_id").to_dicts() if row["example_id"] in both]
    ids = [row["example_id"] for row in kept]
    return plain.select(ids), in_context.select(ids), kept


def _rows(contender: str, kept: Sequence[Mapping[str, str]], losses: Losses) -> list[ExampleLoss]:
    return [
        ExampleLoss(
            contender=contender,
            example_id=row["example_id"],
            group_id=row["group_id"],
            nll=float(nll),
            tokens=int(tokens),
        )
        for row, nll, tokens in zip(kept, losses.nll, losses.tokens, strict=True)
    ]


def _framing_digest(framing: Framing) -> str:
    return sha256_bytes(canonical_json([framing.system, [dict(message) for message in framing.demos]]))


def _adapter_digest(adapter: LoraAdapter | None) -> str:
    """Of what changes the base: tensors and how they are scaled, not who trained them."""
    if adapter is None:
        return "none"
    tensors = {
        name: sha256_bytes(tensor.detach().float().contiguous().cpu().numpy().tobytes())
        for name, tensor in adapter.tensors.items()
    }
    scales = {module: repr(adapter.scale(module)) for module in adapter.modules}
    return combine({"tensors": combine(tensors), "scales": combine(scales)})
