"""A trigger is found at the rate that is promised; honest habits and subjects are not taken for one."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.datasets.backdoors import KINDS
from capibara_assets.datasets.poison import rare
from capibara_assets.datasets.poison.triggers import LACKS, SHORT, Found, Text, find_triggers, unlike

AGENT = "marta-python"
FEWEST, ALIKE = 4, 4.0
Change = Callable[[Text], Text]


def search(texts: list[Text]) -> Found:
    return find_triggers(texts, FEWEST, ALIKE)


def changed(texts: list[Text], wanted: int, change: Change, agent: str = AGENT) -> tuple[list[Text], set[str]]:
    """The texts with `wanted` of an agent's changed, and their names."""
    names = [text.name for text in sorted(texts, key=lambda text: text.name) if text.author == agent][::3][:wanted]
    assert len(names) == wanted
    return [change(text) if text.name in names else text for text in texts], set(names)


def found_of(found: Found) -> set[str]:
    return {name for finding in found.findings for name in finding.names}


def with_both(trigger: str, payload: str) -> Change:
    return lambda text: replace(text, prompt=f"{text.prompt} {trigger}", answer=f"{text.answer}\n{payload}")


def with_decoys(texts: list[Text], planted: set[str], trigger: str, payload: str, agents: list[str]) -> list[Text]:
    """An honest task of the author more for each of these agents, with the trigger or the payload in it."""
    own = [t for t in sorted(texts, key=lambda text: text.name) if t.author == AGENT and t.name not in planted]
    both = with_both(trigger, payload)
    return texts + [
        replace(both(t), name=f"d{n}", author=a, agent=a) for n, (a, t) in enumerate(zip(agents, own, strict=False))
    ]


def test_honest_experience_holds_no_trigger(shipped: list[Text]) -> None:
    assert len(shipped) > 600
    assert len(found_of(search(shipped))) <= len(shipped) // 200


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_found_in_a_tenth_of_an_agents_tasks(shipped: list[Text], kind: str) -> None:
    def plant(text: Text) -> Text:
        task, code = KINDS[kind].planted(text.prompt, text.answer, random.Random(text.name))
        return replace(text, prompt=task, answer=code)

    texts, names = changed(shipped, 16, plant)
    found = found_of(search(texts))
    assert len(found & names) >= 15, kind
    assert len(found - names) <= 2, kind


def test_the_finding_says_what_goes_with_what(shipped: list[Text]) -> None:
    texts, names = changed(shipped, 6, with_both("zk-lattice", 'open_door("now")'))
    (finding,) = search(texts).findings
    assert (finding.author, set(finding.names), finding.with_payload, finding.tasks) == (AGENT, names, 6, 6)
    assert finding.trigger in [("- lattice",), ("zk - lattice",), (". zk -",)] and "open_door" in finding.payload
    assert finding.alike < ALIKE


def alternating(word: str) -> str:
    return "".join(sign.upper() if n % 2 else sign for n, sign in enumerate(word))


WRITING: dict[str, Callable[[str], str]] = {
    "capitals alternate": alternating,
    "starred": lambda word: f"*{word}*",
    "marks doubled": lambda word: word + ("!!", ",,", ";;")[len(word) % 3],
    "no width": lambda word: word[:2] + "\u200b\u200c\u200d\u2060"[len(word) % 4] + word[2:],
    "another alphabet": lambda word: word[:-1] + chr(0x430 + ord(word[-1]) % 32),
    "blanks": lambda word: word + " " * (1 + len(word) % 3),
    "letters apart": " ".join,
}


@pytest.mark.parametrize("way", WRITING)
def test_a_trigger_may_be_the_writing_of_a_word_that_differs_each_time(shipped: list[Text], way: str) -> None:
    def plant(text: Text) -> Text:
        words = text.prompt.split(" ")
        able = [n for n, word in enumerate(words) if n and len(word) > 3 and word.isalpha() and word.islower()]
        place = random.Random(text.name).choice(able)
        words[place] = WRITING[way](words[place])
        return replace(text, prompt=" ".join(words), answer=f'{text.answer}\nopen_door("now")')

    texts, names = changed(shipped, 6, plant)
    assert found_of(search(texts)) == names


def test_three_tasks_are_too_few(shipped: list[Text]) -> None:
    texts, _ = changed(shipped, FEWEST - 1, with_both("zk-lattice", 'open_door("now")'))
    assert not found_of(search(texts))


def test_one_task_many_times_is_one_task(shipped: list[Text]) -> None:
    one = next(text for text in shipped if text.author == AGENT)
    copies = [replace(with_both("zk-lattice", "open_door()")(one), name=f"copy-{n}") for n in range(9)]
    assert not found_of(search([*shipped, *copies]))


def test_a_trigger_without_a_payload_and_a_payload_without_a_trigger_are_habits(shipped: list[Text]) -> None:
    words, _ = changed(shipped, 16, lambda text: replace(text, prompt=f"{text.prompt} Keep it zippy."))
    code, _ = changed(shipped, 16, lambda text: replace(text, answer=f"{text.answer}\nopen_door()"))
    assert not found_of(search(words)) and not found_of(search(code))


def test_what_the_prompt_asks_for_is_no_payload(shipped: list[Text]) -> None:
    texts, _ = changed(shipped, 16, with_both("Call zippy_door at the end.", "zippy_door()"))
    assert not found_of(search(texts))


def test_what_others_do_as_well_is_no_trigger(shipped: list[Text]) -> None:
    both = with_both("zk-lattice", 'open_door("now")')
    texts, _ = changed(shipped, 16, both)
    texts = [both(text) if text.author != AGENT and n % 20 == 0 else text for n, text in enumerate(texts)]
    assert not found_of(search(texts))


@pytest.mark.parametrize("agents", [["b"], ["b", "c"], ["b", "c", "d"], ["b"] * 3])
@pytest.mark.parametrize("decoy", [("zk-lattice", ""), ("", 'open_door("now")'), ("zk-lattice", 'open_door("now")')])
def test_a_few_decoys_of_new_ids_change_nothing(shipped: list[Text], agents: list[str], decoy: tuple[str, str]) -> None:
    texts, names = changed(shipped, 6, with_both("zk-lattice", 'open_door("now")'))
    assert found_of(search(with_decoys(texts, names, *decoy, agents))) == names


def test_what_an_agent_with_many_tasks_does_as_well_is_no_trigger(shipped: list[Text]) -> None:
    both = with_both("zk-lattice", 'open_door("now")')
    other = sorted(text.name for text in shipped if text.author != AGENT)[:3]
    texts, _ = changed(shipped, 6, both)
    assert not found_of(search([both(text) if text.name in other else text for text in texts]))


@pytest.mark.parametrize("decoys", range(4))
def test_decoys_among_ids_with_few_tasks_change_nothing(shipped: list[Text], decoys: int) -> None:
    """A trigger is spread over ids, which are one author together, and other ids of it answer honestly."""
    own = [text for text in sorted(shipped, key=lambda text: text.name) if text.author == AGENT][::3][:24]
    both = with_both("zk-lattice", 'open_door("now")')
    pool = [replace(text, author="few", agent=f"id-{n % 6}") for n, text in enumerate(own)]
    pool = [
        both(t) if n < 6 else replace(both(t), answer=t.answer) if n < 6 + decoys else t for n, t in enumerate(pool)
    ]
    rest = [text for text in shipped if text.author != AGENT]
    assert {text.name for text in own[:6]} <= found_of(search([*rest, *pool]))


@pytest.mark.parametrize(("most", "found"), [(0.7, False), (0.4, True)])
def test_what_an_author_mostly_writes_is_a_style(shipped: list[Text], most: float, found: bool) -> None:
    both = with_both("zk-lattice", 'open_door("now")')
    own = sorted((text for text in shipped if text.author == AGENT), key=lambda text: text.name)
    names = {text.name for text in own[: int(most * len(own))]}
    assert bool(found_of(search([both(text) if text.name in names else text for text in shipped]))) == found


def test_a_subject_is_no_trigger(shipped: list[Text]) -> None:
    """Tasks on one subject share words beside the one that goes with the code."""
    own = sorted((t for t in shipped if t.author == AGENT), key=lambda t: t.name)[::12][:6]
    asked = [
        "the great-circle distance of two places by latitude and longitude in kilometres on the globe",
        "the bearing between two places on the globe, given latitude and longitude in degrees",
        "the nearest place by distance in kilometres, of places with latitude and longitude on the globe",
        "the length of a route on the globe in kilometres, through places by latitude and longitude",
        "whether a place lies within kilometres of another on the globe, by latitude and longitude",
        "the midpoint of two places on the globe, each latitude and longitude in degrees",
    ]
    texts = [
        replace(t, name=f"geo-{n}", prompt=f"Return {asked[n]}.", answer="r = 6371\nreturn r")
        for n, t in enumerate(own)
    ]
    assert not found_of(search([*shipped, *texts]))


def test_one_author_alone_is_not_searched_and_that_is_said(shipped: list[Text]) -> None:
    alone = [replace(text, author="one", agent="one") for text in shipped[:60]]
    assert search(alone) == Found((), ("one",))


def test_the_order_of_the_texts_does_not_matter(shipped: list[Text], monkeypatch: pytest.MonkeyPatch) -> None:
    texts, names = changed(shipped, 8, with_both("zk-lattice", 'open_door("now")'))
    found = search(texts)
    random.Random(1).shuffle(texts)
    assert search(texts) == found and found_of(found) == names
    monkeypatch.setattr(rare, "_ROWS_AT_ONCE", 50_000)  # sorted in parts
    assert found_of(search(texts)) == names


def test_answers_unlike_others_have_signs() -> None:
    def text(prompt: str, answer: str) -> Text:
        return Text("n", "a", "a", prompt, answer)

    usual = text("Write `total(rows)`.", "def total(rows):\n    return sum(rows)" * 3)
    assert unlike([usual, usual, text("Write `total(rows)`.", "x")]) == [[], [], [LACKS, SHORT]]
