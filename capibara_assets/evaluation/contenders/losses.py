"""Losses of contenders on the recorded answers of held-out examples, which need no answers of their own."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Protocol

import polars as pl

from capibara_assets.datasets.tokens.tokenising import IGNORED, Encoded, encode_examples
from capibara_assets.errors import InputError
from capibara_assets.evaluation.contenders.contenders import Framing, ModelContender, loaded
from capibara_assets.evaluation.schema import ExampleLoss
from capibara_assets.modeling.adapters import applied
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.losses import assistant_losses
from capibara_assets.modeling.precision import fast_precision
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.storage.records import table


class ItemLimits(Protocol):
    """Limits of the held-out examples, from the evaluation recipe."""

    @property
    def max_test_examples(self) -> int: ...

    @property
    def max_length(self) -> int: ...


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


def contender_losses(
    base: Base, test: pl.DataFrame, contenders: Sequence[ModelContender], rule: ItemLimits
) -> pl.DataFrame:
    """Losses of contenders that share the base's tokenizer on the same examples, as a table of `ExampleLoss`.

    Args:
        test: rows of `Example`. One that does not fit `max_length` with every contender's framing is left out for all.

    Raises:
        InputError: a whole model with another vocabulary; an adapter that does not fit.
    """
    framings = {one.framing.digest: one.framing for one in contenders}
    encoded = {key: encoded_with(framing, base, test, rule.max_length) for key, framing in framings.items()}
    kept = [name for name in test["example_id"] if all(name in one for one in encoded.values())]
    groups = dict(test.select("example_id", "group_id").iter_rows())
    rows: list[ExampleLoss] = []
    for one in contenders:
        own = encoded[one.framing.digest]
        with loaded(one.model) as model:
            if model.model.config.vocab_size != base.model.config.vocab_size:
                raise InputError(
                    f"{one.name} ({one.model}) has a vocabulary of {model.model.config.vocab_size} tokens, the base "
                    f"{base.model.config.vocab_size}: their losses cannot be compared"
                )
            rows += losses_under(one, model, {name: own[name] for name in kept}, groups)
    return table(ExampleLoss, rows)


def losses_under(
    contender: ModelContender, model: Base, examples: Mapping[str, Encoded], groups: Mapping[str, str]
) -> list[ExampleLoss]:
    """Losses of a contender on tokenised examples.

    Args:
        model: its model, loaded.
        examples: example -> tokens, its framing among them.
        groups: example -> group.
    """
    with applied(model.model, contender.adapter) if contender.adapter else nullcontext():
        losses = assistant_losses(model.model, list(examples.values()), precision=fast_precision(model.model.device))
    return [
        ExampleLoss(
            contender=contender.name, example_id=name, group_id=groups[name], nll=float(nll), tokens=int(tokens)
        )
        for name, nll, tokens in zip(examples, losses.nll, losses.tokens, strict=True)
    ]


def encoded_with(framing: Framing, base: Base, test: pl.DataFrame, max_length: int) -> dict[str, Encoded]:
    """Examples as tokens with a framing around them, by id; those that do not fit `max_length` are missing.

    The framing is context: the tokens that have a loss are those that have one without it.
    """
    plain = _encoded(base, test, max_length)
    if framing == Framing():
        return plain
    messages = [json.dumps(framing.around(json.loads(text))) for text in test["messages"]]
    framed = _encoded(base, test.with_columns(messages=pl.Series(messages, dtype=pl.String)), max_length)
    return {name: _last_tokens(one, plain[name].supervised) for name, one in framed.items() if name in plain}


def routed_losses(losses: pl.DataFrame, picks: Mapping[str, str]) -> pl.DataFrame:
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
    return picked.with_columns(contender=pl.lit("routed")).select(losses.columns).sort("example_id")


def mean_losses(losses: pl.DataFrame) -> dict[str, float]:
    """Contender → nats per assistant token over all examples."""
    sums = losses.group_by("contender").agg(pl.col("nll").sum(), pl.col("tokens").sum()).sort("contender")
    return {row["contender"]: row["nll"] / row["tokens"] for row in sums.to_dicts()}


def _encoded(base: Base, test: pl.DataFrame, max_length: int) -> dict[str, Encoded]:
    if not test.height:
        return {}
    done = encode_examples(test, base.tokenizer, max_length)
    return dict(zip(done.example_ids, done.encoded, strict=True))


def _last_tokens(encoded: Encoded, count: int) -> Encoded:
    """The example with a loss on its last `count` supervised tokens only."""
    places = [place for place, label in enumerate(encoded.labels) if label != IGNORED]
    kept = set(places[len(places) - count :])
    labels = [label if place in kept else IGNORED for place, label in enumerate(encoded.labels)]
    return Encoded(encoded.input_ids, labels, len(kept))
