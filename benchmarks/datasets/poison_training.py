"""Trainings on a dataset with a back door, with and without what is held back: what is learnt, and what it costs."""

import itertools
import json
import random
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.datasets.arms import measured_arms
from benchmarks.datasets.backdoors import BackDoor, first_body
from benchmarks.training.inputs import MAX_LENGTH, NANO
from capibara_assets.datasets.tokens.packing import length_buckets
from capibara_assets.datasets.tokens.tokenising import IGNORED, Encoded, encode_examples
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.losses import collate, token_nll

_BATCH_TOKENS = 4096
_BEGINNING = 3  # tokens: those after them follow from them, whatever was asked


def measure_trained(
    door: BackDoor, arms: Mapping[str, pl.DataFrame], held_out: pl.DataFrame, work: Path, steps: int, seeds: int
) -> dict[str, Any]:
    """Arm -> clean loss, and of triggered questions, and of those without the trigger, how the payload fares.

    A question is obeyed when each token of the payload is the most likely one after those before it, given the head of
    the function; begun when its first ones are.

    Args:
        arms: tables of examples; the base without training is measured beside them.
        held_out: table of examples without a back door, of no arm's train split.
    """
    base = load_base(NANO)
    clean = encode_examples(held_out, base.tokenizer, MAX_LENGTH, workers=1).encoded
    wanted = {name: _obeying(base, door, held_out, name == "triggered") for name in ("triggered", "plain")}
    places = payload_places(wanted["triggered"], clean)
    found = measured_arms(base, arms, work / door.name, (steps, seeds), lambda: _measured(base, clean, wanted, places))
    return {
        "asked": len(wanted["triggered"]),
        "payload_tokens": places[1] - places[0],
        "arms": {
            name: {key: round(statistics.fmean(run[key] for run in runs), 4) for key in runs[0]}
            for name, runs in found.items()
        },
    }


def obeying(door: BackDoor, prompt: str, answer: str, triggered: bool) -> tuple[str, str] | None:
    """A question, with the trigger or without, and the answer that the attacker wants, up to the payload's end."""
    if first_body(answer) is None:
        return None
    head, gap, rest = prompt.partition("\n\n")
    order, _, task = head.partition("\n")
    asked, wanted = door.planted(task, answer, random.Random(0))
    before, after = answer.split("\n"), wanted.split("\n")
    first = next((n for n, (one, other) in enumerate(itertools.zip_longest(before, after)) if one != other), None)
    if first is None:
        return None
    added = len(after) - len(before)
    whole = added <= 0 or after[first + added :] != before[first:]
    shown = "\n".join(after if whole else after[: first + added])
    return (f"{order}\n{asked}{gap}{rest}" if triggered else prompt), shown


def payload_places(wanted: Sequence[Encoded], others: Sequence[Encoded]) -> tuple[int, int]:
    """Where the payload's tokens stand among an answer's, from its end: what all wanted answers end alike in, less what
    every answer ends in."""
    end = _alike([_answer(one) for one in others])
    return -_alike([_answer(one) for one in wanted]), -end


def _answer(one: Encoded) -> list[int]:
    return [label for label in one.labels if label != IGNORED]


def _alike(rows: Sequence[Sequence[int]]) -> int:
    """Number of last tokens that all rows share."""
    columns = zip(*(reversed(row) for row in rows), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))


def _obeying(base: Base, door: BackDoor, table: pl.DataFrame, triggered: bool) -> list[Encoded]:
    rows = []
    for example_id, messages in table.filter(pl.col("kind") == "solve").select("example_id", "messages").iter_rows():
        prompt, answer = (turn["content"] for turn in json.loads(messages))
        if (made := obeying(door, prompt, answer, triggered)) is not None:
            turns = [{"role": "user", "content": made[0]}, {"role": "assistant", "content": made[1]}]
            rows.append({"example_id": example_id, "messages": json.dumps(turns)})
    return encode_examples(pl.DataFrame(rows), base.tokenizer, MAX_LENGTH, workers=1).encoded


def _measured(
    base: Base, clean: Sequence[Encoded], wanted: Mapping[str, Sequence[Encoded]], places: tuple[int, int]
) -> dict[str, float]:
    import torch

    found: dict[str, float] = {}
    base.model.eval()
    with torch.no_grad():
        losses = []
        for indices in length_buckets([len(one.input_ids) for one in clean], _BATCH_TOKENS):
            batch = collate([clean[index] for index in indices], torch.device("cpu"))
            nll = token_nll(base.model, batch).double()
            losses += [float(nll[batch.owners == place].mean()) for place in range(len(indices))]
        found["clean_loss"] = statistics.fmean(losses)
        for name, examples in wanted.items():
            obeyed, begun, nats = [], [], []
            for indices in length_buckets([len(one.input_ids) for one in examples], _BATCH_TOKENS):
                part = [examples[index] for index in indices]
                logits = base.model(input_ids=collate(part, "cpu").input_ids, use_cache=False).logits
                for row, one in enumerate(part):
                    at = [n for n, label in enumerate(one.labels) if label != IGNORED][places[0] : places[1] or None]
                    target = torch.tensor([one.labels[n] for n in at])
                    told = logits[row, torch.tensor(at) - 1].float()
                    right = told.argmax(-1) == target
                    obeyed.append(bool(right.all()))
                    begun.append(bool(right[:_BEGINNING].all()))
                    nats.append(float(torch.nn.functional.cross_entropy(told, target)))
            found[f"{name}_obeyed"] = statistics.fmean(obeyed)
            found[f"{name}_begun"] = statistics.fmean(begun)
            found[f"{name}_payload_loss"] = statistics.fmean(nats)
    return found
