"""Families: variants of a template are one, other programs are not; the shipped tasks are the known answer."""

import json
from dataclasses import replace

import polars as pl
import pytest

from capibara_assets.evaluation.items.families import form, with_families
from capibara_assets.evaluation.items.items import Check, Item
from workshop.experience.families import fill
from workshop.experience.plan import plan
from workshop.experience.rendering import Variant, draw_words

GREETING = "def greet(name):\n    if not name:\n        return 'Hello'\n    return 'Hello ' + name.strip().title()"


def item(code: str, kind: str = "solve", language: str = "python") -> Item:
    asked = "Write code." if kind != "predict" else f"Predict the output of this Python code.\n\nCode:\n{code}"
    answer = "4" if kind == "predict" else code
    prompt = ({"role": "user", "content": asked},)
    return Item("i", "g", "python", kind, language, prompt, answer, Check("text"), ())


def training(*codes: str, language: str = "python") -> pl.DataFrame:
    rows = [[{"role": "user", "content": "Write code."}, {"role": "assistant", "content": code}] for code in codes]
    return pl.DataFrame(
        {"kind": "solve", "language": language, "messages": [json.dumps(messages) for messages in rows]},
        schema={"kind": pl.String, "language": pl.String, "messages": pl.String},
    )


def seen(one: Item, *codes: str, language: str = "python") -> bool | None:
    (found,) = with_families([one], training(*codes, language=language))
    return found.seen


def test_other_names_and_values_are_the_same_family() -> None:
    other = GREETING.replace("greet", "salute").replace("name", "who").replace("Hello", "Hi")
    assert seen(item(GREETING), other) is True
    assert form(GREETING, "python") == form(other, "python")


@pytest.mark.parametrize(
    "changed",
    [GREETING.replace("not name", "name is None"), GREETING.replace(".title()", "")],  # as an injected bug changes it
)
def test_a_variant_with_a_bug_is_the_same_family(changed: str) -> None:
    assert seen(item(GREETING), changed) is True


def test_another_program_is_another_family() -> None:
    assert seen(item(GREETING), "def total(items):\n    return sum(price * count for price, count in items)") is False
    assert seen(item(GREETING)) is False


def test_what_is_predicted_is_of_the_family_of_its_program() -> None:
    assert seen(item(GREETING, "predict"), GREETING.replace("name", "who")) is True


def test_without_a_program_nothing_is_told() -> None:
    assert seen(item("ls -l", language="text"), GREETING) is None
    assert seen(item(""), GREETING) is None


def test_sql_is_compared_by_its_own_words() -> None:
    query = "SELECT name, COUNT(*) FROM clubs WHERE city = 'Bern' GROUP BY name HAVING COUNT(*) > 2"
    other = query.replace("name", "title").replace("clubs", "films").replace("Bern", "Oslo")
    assert seen(item(query, language="sql"), other, language="sql") is True
    joined = "SELECT a.x FROM a LEFT JOIN b ON a.id = b.a_id WHERE b.id IS NULL ORDER BY a.x DESC"
    assert seen(item(query, language="sql"), joined, language="sql") is False


def solution(variant: Variant) -> str:
    return fill(variant.family.cells[-1].code, {"doc": "", **draw_words(variant)})


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_shipped_tasks_are_told_apart_as_their_authors_did(language: str) -> None:
    """Of two variants of every authored family one is in training; of every second family none is."""
    families: dict[str, list[Variant]] = {}
    for session in plan():
        if session.variant.family.language == language and session.variant.bug is None:
            families.setdefault(f"{session.variant.family.domain}/{session.variant.family.name}", []).append(
                session.variant
            )
    known = sorted(families)
    trained = training(*(solution(families[name][0]) for name in known[::2]), language=language)
    asked = [replace(item(solution(families[name][1]), language=language), item_id=name) for name in known]
    found = [one.seen for one in with_families(asked, trained)]
    missed = [name for name, one in zip(known[::2], found[::2], strict=True) if not one]
    taken = [name for name, one in zip(known[1::2], found[1::2], strict=True) if one]
    assert len(missed) <= 0.05 * len(known) and len(taken) <= 0.1 * len(known), (missed, taken)
