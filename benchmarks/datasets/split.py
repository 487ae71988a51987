"""The bench `split`: near-duplicates planted across problems; does anything train that is also tested on?"""

import ast
import hashlib
import itertools
import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
import numpy as np
import polars as pl

from benchmarks.experience_input import BenchInput, bench_input
from benchmarks.output import print_result
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.domains import DOMAINS

_NAME = re.compile(r"\b(?:def|class|const|let|var|function|for)\s+([A-Za-z_]\w{2,})|^\s*([a-z_]\w{2,})\s*=(?!=)", re.M)
_NUMBER = re.compile(r"(?<![\w.\"'%])\d{1,4}(?![\w.\"'])")
_DOCSTRING = re.compile(r'("""|\'\'\')(?:(?!\1).)*\1', re.DOTALL)
_COMMENTS = {"python": "# ", "javascript": "// ", "typescript": "// ", "sql": "-- "}
_NOTES = ("step by step", "as the tests ask for", "checked by hand", "the order matters here", "see the table above")
_CROWDS = (1, 1, 1, 2, 2, 3, 5, 12, 40)  # copies of one problem
_ELSEWHERE = 0.9  # share of the copies in a sandbox of their own; the others go into one of another problem


@click.command("split")
@click.option("--experience", help="Folder of experience; default: the shared collection, else what ships.")
@click.option("--planted", default=5_000, show_default=True, help="Near-duplicates planted across problems.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def split(experience: str | None, planted: int, as_json: bool) -> None:
    """How much straddles train and test (exact, structural, brute-force Jaccard) with near-duplicates planted."""
    print_result(measure(bench_input(experience, None), planted), as_json)


def measure(source: BenchInput, planted: int) -> dict[str, Any]:
    """Grouping and the datasets of all domains on experience with near-duplicates in it, then every pair compared."""
    from capibara_assets.datasets.examples import build_dataset
    from capibara_assets.datasets.groups import assign_groups, group_statistics
    from capibara_assets.datasets.kinds.evidence import Evidence
    from capibara_assets.executions.ingest.ingest import read_experience
    from capibara_assets.executions.patterns.extract import extract_patterns
    from capibara_assets.executions.patterns.repairs import find_repairs
    from capibara_assets.executions.recipe import ExperienceRecipe
    from capibara_assets.executions.selection import evidence, in_window, of_domain

    recipe, experience = shipped_recipe("dataset", DatasetRecipe), shipped_recipe("experience", ExperienceRecipe)
    real = read_experience(source.folder, now=datetime.now(UTC)).executions
    copies, edits = plant(real, planted, recipe)
    executions = pl.concat([real, copies])
    found: dict[str, Evidence] = {}
    for domain in DOMAINS:
        mine = in_window(of_domain(executions, domain), experience)
        repairs = find_repairs(mine)
        found[domain] = Evidence(
            evidence(mine, repairs, experience), extract_patterns(mine, domain, experience), repairs, pl.DataFrame()
        )
    union = pl.concat([e.executions for e in found.values()]).unique("execution_id", maintain_order=True)
    pairs = pl.concat([e.repairs for e in found.values()]).unique("pair_id", maintain_order=True)
    started = time.perf_counter()
    groups = assign_groups(union, pairs, None, recipe)
    seconds = time.perf_counter() - started
    examples = pl.concat([build_dataset(domain, found[domain], groups, recipe).examples for domain in DOMAINS])
    code = dict(union.select("execution_id", "code").iter_rows()) | _codes_of(pairs)
    language = dict(union.select("execution_id", "language").iter_rows()) | {
        unit: spoken
        for side in ("failing_execution_id", "fixed_execution_id")
        for unit, spoken in pairs.select(side, "language").iter_rows()
    }
    usable = set(union.filter(pl.col("outcome") == "ok")["execution_id"]) | set(_codes_of(pairs))
    kept = groups.filter(pl.col("reason_left_out").is_null() & pl.col("unit_id").is_in(list(usable)))
    units = [(unit, place, code[unit], language[unit]) for unit, place in kept.select("unit_id", "split").iter_rows()]
    texts = [
        (example, place, "\n".join(message["content"] for message in json.loads(messages)), spoken)
        for example, place, messages, spoken in examples.select(
            "example_id", "split", "messages", "language"
        ).iter_rows()
    ]
    of_units, of_examples = straddling(units, recipe), straddling(texts, recipe)
    mine = groups.filter(pl.col("unit_id").is_in(copies["execution_id"].implode()))
    return {
        "straddling": sum(of_units.values()) + sum(of_examples.values()),
        "straddling_executions": of_units,
        "straddling_examples": of_examples,
        "compared": {"executions": len(units), "examples": len(texts)},
        "planted": copies.height,
        "planted_by_edit": edits,
        "planted_seen": mine.height,
        "planted_grouped_with_another": int(
            mine.join(groups.group_by("group_id").len(), on="group_id").filter(pl.col("len") > 1).height
        ),
        "planted_left_out": dict(mine["reason_left_out"].drop_nulls().value_counts().iter_rows()),
        "planted_in_examples": examples.filter(
            pl.col("execution_ids").list.eval(pl.element().is_in(copies["execution_id"].implode())).list.any()
        ).height,
        "groups": group_statistics(groups, union, recipe),
        "splits": dict(sorted(groups["split"].value_counts().iter_rows())),
        "examples": {
            f"{domain}": dict(sorted(part["split"].value_counts().iter_rows()))
            for (domain,), part in sorted(examples.group_by("domain"))
        },
        "grouping_s": round(seconds, 2),
        "experience": source.name,
    }


def plant(
    real: pl.DataFrame, planted: int, recipe: DatasetRecipe, seed: int = 0
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Edited copies of executions that ran, in other sandboxes, with other tasks; and how many of each edit."""
    from capibara_assets.datasets.code.structure import tokens

    chance = random.Random(seed)
    rows = [
        row
        for row in real.sort("execution_id").to_dicts()
        if row["outcome"] == "ok" and len(tokens(row["code"], row["language"])) >= recipe.substance_tokens
    ]
    sandboxes = sorted({row["sandbox_id"] for row in rows})
    chance.shuffle(rows)
    copies: list[dict[str, Any]] = []
    edits = Counter[str]()
    while len(copies) < planted:
        row = rows[len(copies) % len(rows)]
        for _ in range(min(chance.choice(_CROWDS), planted - len(copies))):
            number = len(copies)
            name, edit = chance.choice(list(EDITS.items()))
            code = edit(row["code"], row["language"], chance)
            edits[name if code != row["code"] else "none (an exact copy)"] += 1
            own = chance.random() < _ELSEWHERE
            copies.append(
                row
                | {
                    "execution_id": f"planted-{number:06d}",
                    "sandbox_id": f"planted-box-{number:06d}" if own else chance.choice(sandboxes),
                    "code": code,
                    "task": f"Planted task {number}: {chance.choice(_NOTES)}, {chance.choice(_NOTES)}.",
                    "record_digest": hashlib.sha256(f"{number} {code}".encode("utf-8", "replace")).hexdigest(),
                    "source_file": "planted.jsonl",
                    "source_line": number + 1,
                }
            )
    return pl.DataFrame(copies, schema=real.schema), dict(sorted(edits.items()))


def straddling(items: Sequence[tuple[str, str, str, str]], recipe: DatasetRecipe) -> dict[str, int]:
    """How many items (id, split, text, language) of train have a twin in another split, by each comparison.

    Every pair of items is compared: equal normalised texts, equal structural keys of what parses as code, and exact
    Jaccard similarity of token shingles, from a product of sparse matrices.
    """
    from scipy.sparse import csr_array

    from capibara_assets.datasets.code.structure import normal_text, shingles, structural_key, tokens

    def shared(keys: Sequence[str]) -> int:
        places: dict[str, set[str]] = defaultdict(set)
        for (_, place, _, _), key in zip(items, keys, strict=True):
            places[key].add(place)
        mixed = {key for key, those in places.items() if "train" in those and len(those) > 1}
        return sum(place == "train" and key in mixed for (_, place, _, _), key in zip(items, keys, strict=True))

    numbers: dict[str, int] = {}
    columns: list[int] = []
    ends = [0]
    for _, _, text, language in items:
        bag = shingles(tokens(text, language), recipe.near_duplicates.shingle)
        columns += [numbers.setdefault(f"{language}\n{shingle}", len(numbers)) for shingle in sorted(bag)]
        ends.append(len(columns))
    matrix = csr_array((np.ones(len(columns), np.int32), columns, ends), shape=(len(items), max(1, len(numbers))))
    sizes, places = np.diff(ends), np.array([place for _, place, _, _ in items])
    tested = np.flatnonzero(places != "train")
    turned = matrix[tested].T.tocsr()
    near = set()
    trained = np.flatnonzero(places == "train")
    for start in range(0, len(trained), 500):
        rows = trained[start : start + 500]
        product = (matrix[rows] @ turned).tocoo()
        left, right = rows[product.coords[0]], tested[product.coords[1]]
        similar = product.data / (sizes[left] + sizes[right] - product.data) >= recipe.near_duplicates.jaccard
        near |= set(left[similar].tolist())
    return {
        "exact": shared([normal_text(text) for _, _, text, _ in items]),
        "structural": shared([structural_key(text, language) for _, _, text, language in items]),
        "near": len(near),
    }


def renamed(code: str, language: str, chance: random.Random) -> str:
    """Names that the code binds, with another ending."""
    names = sorted({name for pair in _NAME.findall(code) for name in pair if name})
    chosen = {name: f"{name}_{chance.randrange(100)}" for name in names if chance.random() < 0.7}
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda match: chosen.get(match.group(), match.group()), code)


def other_literals(code: str, language: str, chance: random.Random) -> str:
    """One number changed."""
    found = list(_NUMBER.finditer(code))
    if not found:
        return code
    match = chance.choice(found)
    return f"{code[: match.start()]}{int(match.group()) + chance.randrange(1, 9)}{code[match.end() :]}"


def reordered(code: str, language: str, chance: random.Random) -> str:
    """Two neighbouring statements of a Python cell swapped; lines of anything else."""
    lines = code.split("\n")
    if language != "python":
        at = chance.randrange(max(1, len(lines) - 1))
        return "\n".join([*lines[:at], *lines[at : at + 2][::-1], *lines[at + 2 :]])
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError):
        return code  # a cell with magics
    if len(body) < 2:
        return code
    at = chance.randrange(len(body) - 1)
    ends = [0, *(statement.end_lineno or 0 for statement in body)]
    parts = ["\n".join(lines[a:b]).strip("\n") for a, b in itertools.pairwise(ends)]
    parts[at], parts[at + 1] = parts[at + 1], parts[at]
    return "\n".join([*parts, *lines[ends[-1] :]])


def commented(code: str, language: str, chance: random.Random) -> str:
    """A comment of one line put in front of a statement that is not indented."""
    lines = code.split("\n")
    starts = [i for i, line in enumerate(lines) if line and not line[0].isspace()] or [0]
    at = chance.choice(starts)
    return "\n".join([*lines[:at], _COMMENTS.get(language, "# ") + chance.choice(_NOTES), *lines[at:]])


def documented(code: str, language: str, chance: random.Random) -> str:
    """Another docstring, where there is one."""
    return _DOCSTRING.sub(lambda match: f'"""{chance.choice(_NOTES).capitalize()}."""', code, count=1)


def twice(code: str, language: str, chance: random.Random) -> str:
    """A comment, and names of its own."""
    return commented(renamed(code, language, chance), language, chance)


EDITS: dict[str, Callable[[str, str, random.Random], str]] = {
    "renamed": renamed,
    "literals": other_literals,
    "reordered": reordered,
    "comments": commented,
    "docstring": documented,
    "renamed and comments": twice,
}


def _codes_of(pairs: pl.DataFrame) -> dict[str, str]:
    """Execution id -> code, of both sides of repair pairs."""
    found = dict(pairs.select("failing_execution_id", "failing_code").iter_rows())
    return found | dict(pairs.select("fixed_execution_id", "fixed_code").iter_rows())
