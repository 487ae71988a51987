"""Answers of all kinds of contenders: same seeds and budget, resumed after kill -9, never made twice."""

import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from capibara_assets.errors import InputError
from capibara_assets.evaluation.answering import answer as answering
from capibara_assets.evaluation.answering.answer import Answer, answer_items, prompt_tokens, seed_of, too_long
from capibara_assets.evaluation.answering.journal import open_journal
from capibara_assets.evaluation.contenders.contenders import (
    Contender,
    Framing,
    ModelContender,
    RoutedContender,
    StoredContender,
)
from capibara_assets.evaluation.decoding import Decoding
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base
from capibara_assets.storage.records import table
from capibara_assets_tests.evaluation.contenders.test_contenders import adapter
from capibara_assets_tests.forked import Forked, Say

SHORT = Decoding(max_new_tokens=6)
DRAWN = Decoding(max_new_tokens=6, temperature=1.0, samples=3)


@dataclass(frozen=True)
class Item:
    item_id: str
    prompt: tuple[dict[str, str], ...]
    reference: str = ""


def items(count: int, first: int = 0) -> list[Item]:
    return [Item(f"i{n}", ({"role": "user", "content": f"Return {n} squared."},)) for n in range(first, first + count)]


def answers(contender: Contender, asked: list[Item], decoding: Decoding, journal: Path | None = None) -> list[Answer]:
    return answer_items(contender, asked, decoding, journal).answers


def texts(found: list[Answer]) -> list[str]:
    return [answer.text for answer in found]


def test_prompts_are_tokens_as_transformers_makes_them(base: Base):
    asked = [[{"role": "system", "content": "s"}, *items(1)[0].prompt], list(items(1, 9)[0].prompt)]
    theirs = [base.tokenizer.apply_chat_template(m, add_generation_prompt=True)["input_ids"] for m in asked]
    assert prompt_tokens(base, asked) == theirs and prompt_tokens(base, []) == []


def test_a_prompt_that_is_no_unicode_is_refused(base: Base):
    assert prompt_tokens(base, [[{"role": "user", "content": "\U0001f642"}]])
    with pytest.raises(InputError, match=r"a prompt is not Unicode text: it has '\\ud83d', half of a character"):
        prompt_tokens(base, [[{"role": "user", "content": "sound"}], [{"role": "user", "content": "\ud83d"}]])


def test_a_models_answers_are_what_transformers_generates(base: Base, folder: Path):
    found = answers(ModelContender("base", folder), items(5), SHORT)
    for answer, item in zip(found, items(5), strict=True):
        ids = torch.tensor(prompt_tokens(base, [item.prompt]))
        new = base.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False, pad_token_id=1
        )
        assert answer.text == base.tokenizer.decode(new[0, ids.shape[1] :], skip_special_tokens=True)
        assert (answer.contender, answer.item_id, answer.sample) == ("base", item.item_id, 0)
    assert table(Answer, found).height == 5


def test_an_adapter_answers_as_its_merged_model_and_leaves_no_trace(base: Base, tmp_path: Path):
    before = {name: (p.data_ptr(), p.detach().clone()) for name, p in base.model.named_parameters()}
    found = answers(ModelContender("tuned", base, adapter(1, 2.0)), items(6), SHORT)
    for name, parameter in base.model.named_parameters():
        assert parameter.data_ptr() == before[name][0] and torch.equal(parameter, before[name][1])
    with applied(base.model, adapter(1, 2.0)):
        base.model.save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes((base.path / name).read_bytes())
    assert texts(answers(ModelContender("merged", tmp_path), items(6), SHORT)) == texts(found)
    assert texts(answers(ModelContender("base", base), items(6), SHORT)) != texts(found)


def test_a_framing_goes_before_the_prompt_and_after_its_system_message(base: Base):
    demos = ({"role": "user", "content": "q"}, {"role": "assistant", "content": "a"})
    framing = Framing("Be brief.", demos)
    assert framing.around(items(1)[0].prompt) == [
        {"role": "system", "content": "Be brief."},
        *demos,
        *items(1)[0].prompt,
    ]
    with_own = ({"role": "system", "content": "own"}, *items(1)[0].prompt)
    assert framing.around(with_own)[0]["content"] == "Be brief.\n\nown"
    assert Framing().around(with_own) == list(with_own)
    framed = answers(ModelContender("base+playbook", base, framing=framing), items(4), SHORT)
    by_hand = [Item(item.item_id, tuple(framing.around(item.prompt))) for item in items(4)]
    assert texts(framed) == texts(answers(ModelContender("base", base), by_hand, SHORT))


def test_a_router_sends_each_prompt_to_its_expert_or_to_the_base(base: Base):
    experts = {"sql": adapter(1, 2.0), "python": adapter(2, 2.0)}
    picks = ["sql", None, "python", "sql", None, "python"]
    seen: list[str] = []

    def route(prompts: Any) -> list[str | None]:
        seen.extend(prompts)
        return [picks[int(prompt.split()[1])] for prompt in prompts]

    routed = answers(RoutedContender("routed", base, experts, route), items(6), SHORT)
    assert seen == [f"Return {n} squared." for n in range(6)]
    for number, answer in enumerate(routed):
        name = picks[number]
        alone = answers(ModelContender("one", base, experts[name] if name else None), items(1, number), SHORT)
        assert answer.text == alone[0].text
    with pytest.raises(InputError, match="picks ml"):
        answers(RoutedContender("routed", base, experts, lambda p: ["ml"] * len(p)), items(1), SHORT)


def test_greedy_samples_are_made_once_and_drawn_ones_each_with_its_seed(base: Base, monkeypatch: pytest.MonkeyPatch):
    contender = ModelContender("base", base)
    greedy = answer_items(contender, items(3), Decoding(max_new_tokens=6, samples=4))
    assert greedy.speed.answers == 3 and len(greedy.answers) == 12
    assert texts(greedy.answers)[:4] == [greedy.answers[0].text] * 4
    drawn = answer_items(contender, items(3), DRAWN)
    assert drawn.speed.answers == 9 and len(set(texts(drawn.answers))) > 6
    fewer = answers(contender, items(1, 2), Decoding(max_new_tokens=6, temperature=1.0, samples=2))
    assert fewer == [answer for answer in drawn.answers if answer.item_id == "i2"][:2]
    assert len({seed_of(DRAWN, item.item_id, s) for item in items(50) for s in range(3)}) == 150


def test_speed_counts_what_was_made_now(base: Base, tmp_path: Path):
    contender, journal = ModelContender("base", base), tmp_path / "answers.jsonl"
    first = answer_items(contender, items(4), SHORT, journal)
    assert first.speed.answers == 4 and first.speed.tokens == sum(a.tokens or 0 for a in first.answers)
    assert first.speed.tokens_per_second and first.speed.peak_mib and first.speed.peak_mib > 50
    second = answer_items(contender, items(6), SHORT, journal)
    assert second.speed.answers == 2 and second.answers[:4] == first.answers
    third = answer_items(contender, items(6), SHORT, journal)
    assert third.answers == second.answers and third.speed.tokens_per_second is None


def test_the_journal_knows_answers_by_what_made_them_not_by_name(base: Base, tmp_path: Path):
    journal = tmp_path / "answers.jsonl"

    def made(contender: Any, decoding: Decoding = SHORT, asked: Any = None) -> int:
        return answer_items(contender, asked or items(3), decoding, journal).speed.answers

    assert made(ModelContender("base", base)) == 3
    assert made(ModelContender("the same model by another name", base)) == 0
    assert made(ModelContender("tuned", base, adapter(1))) == 3
    assert made(ModelContender("tuned", base, adapter(2))) == 3
    assert made(ModelContender("base", base, framing=Framing("s"))) == 3
    assert made(ModelContender("base", base), Decoding(max_new_tokens=5)) == 3
    assert made(ModelContender("base", base), DRAWN) == 9
    assert made(ModelContender("base", base), DRAWN.model_copy(update={"samples": 4})) == 3
    assert made(ModelContender("base", base), DRAWN.model_copy(update={"seed": 1})) == 9
    changed = [Item("i0", ({"role": "user", "content": "Something else."},))]
    assert made(ModelContender("base", base), SHORT, changed) == 1
    assert made(ModelContender("base", base)) == 0
    names = [a.contender for a in answers(ModelContender("renamed", base), items(3), SHORT, journal)]
    assert names == ["renamed"] * 3


def test_scale_and_weights_make_an_adapter_not_its_papers(base: Base):
    one = adapter(1)
    renamed = LoraAdapter({**one.config, "base_model_name_or_path": "x"}, one.tensors)
    louder = LoraAdapter({**one.config, "lora_alpha": 8}, one.tensors)
    digests = [ModelContender("a", base, each).identity for each in (one, renamed, louder, adapter(2), None)]
    assert digests[0] == digests[1] and len(set(digests)) == 4


def test_a_torn_last_line_is_made_again_and_a_damaged_one_is_an_error(base: Base, tmp_path: Path):
    contender, journal = ModelContender("base", base), tmp_path / "answers.jsonl"
    whole = answer_items(contender, items(4), SHORT, journal)
    data = journal.read_bytes()
    journal.write_bytes(data[:-9])
    again = answer_items(contender, items(4), SHORT, journal)
    assert again.answers == whole.answers and again.speed.answers == 1
    assert sorted(journal.read_bytes().splitlines()) == sorted(data.splitlines())
    journal.write_bytes(b"{broken\n" + data)
    with pytest.raises(InputError, match="line 1"):
        answer_items(contender, items(4), SHORT, journal)


def test_an_answer_that_was_edited_is_made_again_and_those_beside_it_are_kept(
    base: Base, tmp_path: Path, logged: io.StringIO
):
    contender, journal = ModelContender("base", base), tmp_path / "answers.jsonl"
    whole = answer_items(contender, items(4), SHORT, journal)
    lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
    lines[1]["text"] = "the recorded answer"
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    again = answer_items(contender, items(4), SHORT, journal)
    assert again.answers == whole.answers and again.speed.answers == 1
    said = (
        f"{journal}: 1 damaged line left out (first: line 2: its checksum does not fit); what was there is made again"
    )
    assert said in logged.getvalue()
    assert answer_items(contender, items(4), SHORT, journal).speed.answers == 0, "kept for the next one"


def test_a_journal_has_one_writer(base: Base, tmp_path: Path):
    with (
        open_journal(tmp_path / "j.jsonl"),
        pytest.raises(InputError, match="in use by another evaluation"),
        open_journal(tmp_path / "j.jsonl"),
    ):
        pass
    with open_journal(tmp_path / "j.jsonl") as free:
        assert free.lines == {}


def test_after_kill_nine_the_next_answer_is_made_and_none_twice(folder: Path, tmp_path: Path) -> None:
    journal = tmp_path / "answers.jsonl"
    made, decoding = answering._from_model, Decoding(max_new_tokens=6, temperature=1.0, samples=2)

    def work(say: Say) -> None:
        def slowly(*arguments: Any) -> Iterator[Any]:
            for number, one in enumerate(made(*arguments)):
                if number == 3:
                    say("three")
                    time.sleep(600)
                yield one

        torch.set_num_threads(1)
        answering._from_model = slowly  # type: ignore[assignment]
        answer_items(ModelContender("base", folder), items(4), decoding, journal)

    process = Forked(work)
    try:
        assert process.lines.readline() == "three\n"
    finally:
        process.kill()
        process.rest()
    kept = [json.loads(line)["key"] for line in journal.read_bytes().splitlines()]
    assert len(set(kept)) == 3
    contender = ModelContender("base", folder)
    resumed = answer_items(contender, items(4), decoding, journal)
    assert resumed.speed.answers == 5 and len(journal.read_bytes().splitlines()) == 8
    assert resumed.answers == answers(contender, items(4), decoding)


def test_what_cannot_be_asked_is_refused_by_name(base: Base):
    contender = ModelContender("base", base)
    words = " ".join(["list of integers"] * 90)
    long = Item("long", ({"role": "user", "content": words},))
    assert too_long(contender, [*items(2), long], SHORT) == ["long"]
    with pytest.raises(InputError, match=r"1 prompts leave no room .* \(long\)"):
        answers(contender, [*items(2), long], SHORT)
    with pytest.raises(InputError, match="occur twice: i0"):
        answers(contender, [*items(2), *items(1)], SHORT)
    assert answers(contender, [], SHORT) == []


def test_stored_answers_are_taken_as_they_are_and_missing_ones_named(base: Base):
    known = {(f"i{n}", s): (f"text {n} {s}", None, "stop") for n in range(3) for s in range(2)}
    contender = StoredContender("former", Path("former.jsonl"), known)
    two = Decoding(samples=2, temperature=1.0)
    found = answer_items(contender, items(3), two)
    assert [(a.contender, a.text, a.tokens) for a in found.answers][:2] == [
        ("former", "text 0 0", None), ("former", "text 0 1", None),
    ]  # fmt: skip
    assert found.speed.answers == 0
    with pytest.raises(InputError, match=r"lacks 2 of 8 answers, the first is sample 0 of i3"):
        answers(contender, items(4), two)
    with pytest.raises(InputError, match="holds scores, no answers"):
        answers(StoredContender("former", Path("s.json"), scores={"i0": 1.0}), items(1), SHORT)
