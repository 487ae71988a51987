"""All contenders on the same held-out examples: base, playbook in context, voters, experts, merged model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from capibara_assets.datasets.tokenising import Encoded, encode_examples
from capibara_assets.evaluation.recipe import DecisionRule
from capibara_assets.evaluation.schema import ExampleLoss
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.losses import Losses, assistant_losses
from capibara_assets.modeling.precision import fast_precision
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.storage.records import table


def held_out(examples: pl.DataFrame, rule: DecisionRule) -> pl.DataFrame:
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


def score(
    base: Base,
    test: pl.DataFrame,
    playbook: str,
    adapters: Mapping[str, LoraAdapter],
    merged: Path | None,
    rule: DecisionRule,
) -> pl.DataFrame:
    """Losses of every contender on every held-out example, as a table of `ExampleLoss`.

    Args:
        test: rows of `Example`. An example that does not fit `max_length`, playbook included, is left out of all arms.
        playbook: the system message of the playbook arm; empty: there is no such arm (contract 3).
        adapters: contender → adapter on the base.
        merged: directory of the merged model; None where there is none.
    """
    plain, with_playbook, kept = _encode(base, test, playbook, rule)
    precision = fast_precision(base.model.device)
    rows = _rows("base", kept, assistant_losses(base.model, plain, precision=precision))
    if playbook:
        rows += _rows("playbook", kept, assistant_losses(base.model, with_playbook, precision=precision))
    for name, adapter in adapters.items():
        with applied(base.model, adapter):
            rows += _rows(name, kept, assistant_losses(base.model, plain, precision=precision))
    if merged is not None:
        rows += _rows("merged", kept, assistant_losses(load_base(merged).model, plain, precision=precision))
    return table(ExampleLoss, rows)


def mean_losses(losses: pl.DataFrame) -> dict[str, float]:
    """Contender → nats per assistant token over all examples."""
    sums = losses.group_by("contender").agg(pl.col("nll").sum(), pl.col("tokens").sum()).sort("contender")
    return {row["contender"]: row["nll"] / row["tokens"] for row in sums.to_dicts()}


def _encode(
    base: Base, test: pl.DataFrame, playbook: str, rule: DecisionRule
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


def with_system(messages: Sequence[Mapping[str, str]], playbook: str) -> list[Mapping[str, str]]:
    """The messages with the playbook as their one system message, before the text of one that is already there."""
    if not playbook:
        return list(messages)
    if messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{playbook}\n\n{messages[0]['content']}"}, *messages[1:]]
    return [{"role": "system", "content": playbook}, *messages]


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
