"""Checks of datasets before anything trains on them: each function lists problems, none when all is good."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import polars as pl

from capibara_assets.datasets.code.structure import normal_text, structural_key
from capibara_assets.datasets.duplicates.near import near_texts
from capibara_assets.datasets.duplicates.translated import translated
from capibara_assets.datasets.recipe import DatasetRecipe, NearDuplicates, Routing
from capibara_assets.datasets.schema import SPLITS, Example, main_kind
from capibara_assets.datasets.tokens.templates import Tokenizer
from capibara_assets.datasets.tokens.tokenising import EncodedSet, encode_examples
from capibara_assets.domains import Domain
from capibara_assets.executions.secrets.prefilter import may_hold_secrets
from capibara_assets.executions.secrets.rules import find_secrets
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.storage.records import problems

_SHOWN = 3  # examples named for each problem
_TOLERANCE = 1e-6  # relative, of summed weights
_ANY_LENGTH = 1 << 30  # tokens: training leaves long examples out by name


def leakage(examples: Mapping[Domain, pl.DataFrame], near: NearDuplicates | None = None) -> list[str]:
    """Leaks between splits of all domains: a group, sandbox, execution, text or structurally equal code in two splits.

    Args:
        near: also report near-duplicates of whole texts, by these parameters, and the same problem in two languages.
    """
    every = (
        pl.concat([frame.select(list(_COLUMNS)) for frame in examples.values()])
        if examples
        else pl.DataFrame(schema=_COLUMNS)
    )
    splits: dict[tuple[str, str], set[str]] = defaultdict(set)
    texts = []
    asked = []
    for kind, language, messages, group, split, sandboxes, executions, _, proof in every.iter_rows():
        splits["group", group].add(split)
        for sandbox in sandboxes:
            splits["sandbox", sandbox].add(split)
        for execution in executions:
            splits["execution", execution].add(split)
        turns = [turn for turn in json.loads(messages) if turn["role"] != "system"]  # many may share one system text
        asked.append("\n".join([*(turn["content"] for turn in turns if turn["role"] == "user"), proof or ""]))
        text = normal_text("\n".join(turn["content"] for turn in turns))
        texts.append(text)
        splits["text", sha256_bytes(text.encode("utf-8", "replace"))].add(split)
        if kind in ("solve", "repair"):
            splits["structure", structural_key(turns[-1]["content"], language)].add(split)
    leaking: list[str] = []
    for sort in ("group", "sandbox", "execution", "text", "structure"):
        leaks = sorted(name for (kind, name), where in splits.items() if kind == sort and len(where) > 1)
        if leaks:
            leaking.append(f"{len(leaks)} {sort}(s) in more than one split, such as {', '.join(leaks[:_SHOWN])}")
    if near is None:
        return leaking
    pairs = near_texts(texts, near)
    alike = zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)
    two_languages = translated(asked, every["language"].to_list(), every["split"].to_list())
    return [
        *leaking,
        *_pairs_in_two_splits("near-duplicates", every, alike),
        *_pairs_in_two_splits("examples of one problem, each in a language of its own,", every, two_languages),
    ]


def _pairs_in_two_splits(what: str, every: pl.DataFrame, pairs: Iterable[tuple[int, int]]) -> list[str]:
    split, ids = every["split"].to_list(), every["example_id"].to_list()
    leaks = sorted({tuple(sorted((ids[a], ids[b]))) for a, b in pairs if split[a] != split[b]})
    shown = ", ".join(" and ".join(pair) for pair in leaks[:_SHOWN])
    return [f"{len(leaks)} pair(s) of {what} in two splits, such as {shown}"] if leaks else []


def example_problems(domain: Domain, examples: pl.DataFrame) -> list[str]:
    """Faults of one domain's table: its schema, its messages, its kinds, its provenance."""
    if broken := problems(Example, examples):
        return broken
    faults: dict[str, list[str]] = defaultdict(list)
    columns = examples.select(
        "example_id", "domain", "kind", "messages", "execution_ids", "sandbox_ids", "provenance", "source_places"
    )
    for example_id, of_domain, kind, messages, executions, sandboxes, provenance, places in columns.iter_rows():
        if of_domain != domain:
            faults[f"belongs to domain {of_domain}"].append(example_id)
        if kind == "solve" and domain == Domain.DEBUG:
            faults["is a solve example, which debug has none of"].append(example_id)
        if provenance == "imported" and not places:
            faults["is imported and names no file and line"].append(example_id)
        if provenance == "experience" and not (executions and sandboxes):
            faults["names no execution or sandbox that it came from"].append(example_id)
        fault = message_fault(messages)
        if fault:
            faults[fault].append(example_id)
    return [
        f"{len(ids)} example(s): {fault}, such as {', '.join(ids[:_SHOWN])}" for fault, ids in sorted(faults.items())
    ]


def message_fault(messages: str) -> str | None:
    """The fault of a `messages` value; None for an optional system turn, then user and assistant in turns."""
    try:
        turns = json.loads(messages)
    except ValueError:
        return "messages are no JSON"
    if not isinstance(turns, list) or not all(_is_turn(turn) for turn in turns):
        return "messages are no list of {role, content} with text"
    roles = [turn["role"] for turn in turns]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    if not spoken or len(spoken) % 2 or spoken != ["user", "assistant"] * (len(spoken) // 2):
        return "messages are not user and assistant in turns"
    return None


def size_problems(examples: pl.DataFrame, minimum: int = 1) -> list[str]:
    """Splits of one domain with fewer than `minimum` examples."""
    return [
        f"{count} {split} example(s), at least {minimum} wanted: more executions, or a longer window, are needed"
        for split in SPLITS
        if (count := int((examples["split"] == split).sum())) < minimum
    ]


def balance_problems(domain: Domain, examples: pl.DataFrame, recipe: DatasetRecipe) -> list[str]:
    """Kinds whose share exceeds the recipe's cap, in a domain that is large enough for caps to apply."""
    if examples.height <= recipe.cap_floor:
        return []
    exceeding = []
    for kind, count in sorted(examples["kind"].value_counts().iter_rows()):
        cap = recipe.caps.get(kind, 1.0)
        if kind != main_kind(domain) and count > cap * examples.height:
            exceeding.append(f"{kind}: {count} of {examples.height} examples, more than its cap {cap}")
    return exceeding


def label_problems(encoded: EncodedSet) -> list[str]:
    """Encoded examples without a supervised token, or whose labels differ from their tokens."""
    faulty = []
    for example_id, item in zip(encoded.example_ids, encoded.encoded, strict=True):
        if item.supervised < 1 or len(item.labels) != len(item.input_ids):
            faulty.append(f"{example_id}: {item.supervised} supervised of {len(item.input_ids)} tokens")
        elif any(label not in (-100, token) for label, token in zip(item.labels, item.input_ids, strict=True)):
            faulty.append(f"{example_id}: a label is not its token")
    return faulty


def label_audit(examples: pl.DataFrame, tokenizer: Tokenizer) -> list[str]:
    """Examples without a supervised token under this tokenizer's chat template, whatever their length."""
    encoded = encode_examples(examples, tokenizer, _ANY_LENGTH)
    silent = sorted(name for name, reason in encoded.left_out.items() if "supervised" in reason)
    return [f"{name}: {encoded.left_out[name]}" for name in silent] + label_problems(encoded)


def secret_problems(examples: pl.DataFrame) -> list[str]:
    """Examples that still hold a secret in any of their texts; placeholders are fine. No secret is quoted."""
    columns = examples.select("messages", "proof", "diff", "test")
    texts = [
        "\n".join([*(turn["content"] for turn in json.loads(messages)), *(text or "" for text in others)])
        for messages, *others in columns.iter_rows()
    ]
    by_kind: dict[str, list[str]] = defaultdict(list)
    for example_id, text, suspect in zip(examples["example_id"], texts, may_hold_secrets(texts), strict=True):
        for kind in sorted({secret.kind for secret in find_secrets(text)}) if suspect else ():
            by_kind[kind].append(example_id)
    return [f"{len(ids)} example(s) hold a {kind}, such as {', '.join(ids[:_SHOWN])}" for kind, ids in by_kind.items()]


def route_problems(routes: pl.DataFrame, recipe: Routing) -> list[str]:
    """Prompts without a domain or weight, groups of prompts in two splits, and classes that are not balanced."""
    faults = []
    lengths = pl.col("domains").list.len() != pl.col("weights").list.len()
    if uneven := routes.filter(lengths).height:
        return [f"{uneven} prompt(s) whose weights are not one for each domain"]
    empty = routes.filter(pl.col("domains").list.len() == 0)
    if empty.height:
        faults.append(f"{empty.height} prompt(s) without a domain, such as {empty['route_id'].to_list()[0]}")
    straddling = routes.group_by("group_id").agg(pl.col("split").n_unique().alias("n")).filter(pl.col("n") > 1)
    if straddling.height:
        first = min(straddling["group_id"].to_list())
        faults.append(f"{straddling.height} group(s) of prompts in more than one split, such as {first}")
    return faults + _imbalance(routes.filter(pl.col("split") == "train"), set(routes["domains"].explode()), recipe)


def _imbalance(train: pl.DataFrame, domains: Collection[str], recipe: Routing) -> list[str]:
    """Domains without a training prompt, with too few for weights to help, or of unequal weight."""
    labels = train.select("domains", "weights").explode("domains", "weights").drop_nulls()
    classes = labels.group_by("domains").agg(pl.len().alias("prompts"), pl.col("weights").sum()).sort("domains")
    missing = sorted(set(domains) - set(classes["domains"]) - {None})
    unbalanced = [f"{name}: no prompt in the train split" for name in missing]
    most, heaviest = max(classes["prompts"], default=0), max(classes["weights"], default=0.0)
    for name, prompts, weight in classes.iter_rows():
        if prompts * recipe.most_imbalance < most:
            unbalanced.append(
                f"{name}: {prompts} training prompts, another domain has {most}: weights cannot even that out"
            )
        if abs(weight - heaviest) > _TOLERANCE * heaviest:
            unbalanced.append(f"{name}: its training prompts weigh {weight:.6g}, another domain's {heaviest:.6g}")
    return unbalanced


def _is_turn(turn: Any) -> bool:
    return (
        isinstance(turn, dict)
        and set(turn) == {"role", "content"}
        and isinstance(turn["content"], str)
        and bool(turn["content"].strip())
    )


_COLUMNS: dict[str, Any] = {
    "kind": pl.String,
    "language": pl.String,
    "messages": pl.String,
    "group_id": pl.String,
    "split": pl.String,
    "sandbox_ids": pl.List(pl.String),
    "execution_ids": pl.List(pl.String),
    "example_id": pl.String,
    "proof": pl.String,
}
