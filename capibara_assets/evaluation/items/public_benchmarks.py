"""Public code benchmarks as items, from files in HumanEval's or MBPP's format.

No benchmark is shipped: a file is given by its path, and its digest is recorded, since versions differ.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capibara_assets.datasets.duplicates.public_benchmarks import entries, read_items
from capibara_assets.datasets.kinds import prompts
from capibara_assets.errors import InputError
from capibara_assets.evaluation.items.items import Check, Item
from capibara_assets.executions.parsing import python_tree
from capibara_assets.storage.digests import sha256_file

_SUFFIXES = (".gz", ".jsonl", ".json")


@dataclass(frozen=True)
class Benchmark:
    """The items of one benchmark file.

    Attributes:
        name: the file's stem.
        digest: SHA-256 of the file, which is its version.
    """

    name: str
    digest: str
    items: tuple[Item, ...]


def read_benchmark(path: Path) -> Benchmark:
    """Read the items of a benchmark file.

    HumanEval's fields: `task_id, prompt, entry_point, test, canonical_solution`; MBPP's: `text, code, test_list`.

    Raises:
        InputError: as `read_items`, or an item without tests or whose id occurs twice; the message names the line.
    """
    name = _stem(path)
    solutions = read_items(name, path)
    items: dict[str, Item] = {}
    for (place, entry), solution in zip(entries(name, path), solutions, strict=True):
        item_id = f"{name}/{solution.item_id}"
        if item_id in items:
            raise InputError(f"benchmark {name}: {place}: task_id {solution.item_id} occurs twice")
        of_shape = _human_eval if "canonical_solution" in entry else _mbpp
        prompt, check = of_shape(entry, solution.language, f"benchmark {name}: {place}")
        items[item_id] = Item(
            item_id,
            item_id,
            name,
            "benchmark",
            solution.language if solution.language in ("python", "javascript") else "text",
            ({"role": "user", "content": prompt},),
            solution.solution,
            check,
            (),
        )
    return Benchmark(name, sha256_file(path), tuple(items.values()))


def _human_eval(entry: Mapping[str, Any], language: str, place: str) -> tuple[str, Check]:
    test, point = entry.get("test"), entry.get("entry_point")
    if not isinstance(test, str) or not test.strip():
        raise InputError(f"{place} has no test")
    head = str(entry.get("declaration") or entry["prompt"])
    tests = test
    if language == "python" and isinstance(point, str) and f"check({point})" not in test:
        tests = f"{test.rstrip()}\n\ncheck({point})\n"
    before = _preamble(head, point) if language == "python" and isinstance(point, str) else ""
    prompt = f"Complete this {prompts.language_name(language)} code.\n\n{entry['prompt']}"
    return prompt, Check("assertions", before, tests)


def _mbpp(entry: Mapping[str, Any], language: str, place: str) -> tuple[str, Check]:
    tests = entry.get("test_list")
    if not isinstance(tests, list) or not tests or not all(isinstance(each, str) for each in tests):
        raise InputError(f"{place} has no test_list (a list of assertions)")
    setup = entry.get("test_setup_code") or "\n".join(entry.get("test_imports") or [])
    statement = str(entry["text"] if "text" in entry else entry["prompt"])
    prompt = prompts.solve(language, statement, "", tests, [])
    return prompt, Check("assertions", "", "\n".join([*([setup] if setup else []), *tests]))


def _preamble(head: str, point: str) -> str:
    """Imports and helpers above the function that is asked for, which answers leave out."""
    if (tree := python_tree(head + "\n    pass\n")) is None:
        return ""
    before = []
    for node in tree.body:
        if getattr(node, "name", None) == point:
            break
        before.append(node)
    return ast.unparse(ast.Module(before, []))


def _stem(path: Path) -> str:
    name = path.name
    while Path(name).suffix in _SUFFIXES:
        name = Path(name).stem
    return name
