"""Texts and masks of published chat templates, against the same forms written out in Python."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.datasets.tokens.packing import IGNORED
from capibara_assets.datasets.tokens.templates import ChatTemplate
from capibara_assets.datasets.tokens.templates_learned import content_triggers
from capibara_assets.datasets.tokens.tokenising import encode
from capibara_assets.errors import InputError
from capibara_assets_tests.datasets.chat_forms import FORMS, SPECIAL, Form, Turns, chatml, tokenizer_of

ASK = [("user", "Add\n1 and 2."), ("assistant", "def f():\n    return 1 + 2")]
MORE = [*ASK, ("user", "And é, 漢 or 🙂?"), ("assistant", "print('🙂')  # 🙂")]
THINKING = (  # as reasoning models do: an empty thought before the last answer only, thoughts of earlier ones dropped
    "{% for message in messages %}{% set text = message['content'].split('</think>')[-1].lstrip('\n') %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' and loop.last %}<think>\n\n</think>\n\n{{ text }}"
    "{% else %}{{ text }}{% endif %}<|im_end|>{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant{{ '\n' }}{% endif %}"
)


def messages_of(turns: Turns) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


def assert_masked(form: Form, tokenizer: Any, turns: Turns) -> None:
    """Text and mask are those of the form: a token inside an answer has a loss, one that holds other text has none."""
    text, wanted = "", []
    for part, supervised in form.write(turns):
        wanted += [supervised] * len(part)
        text += part
    assert ChatTemplate(tokenizer).rendered(messages_of(turns)).text == text
    found = encode(messages_of(turns), tokenizer, 10_000)
    raw = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    assert found.input_ids == raw["input_ids"]
    covered = [False] * len(text)
    for (start, end), label in zip(raw["offset_mapping"], found.labels, strict=True):
        if label != IGNORED:
            covered[start:end] = [True] * (end - start)
            other = "".join(text[at] for at in range(start, end) if not wanted[at])
            assert any(wanted[start:end]) or start == end
            assert not other.strip(), f"{text[start:end]!r} holds other text"
        elif start < end:
            assert not all(wanted[start:end]), f"{text[start:end]!r} has no loss"
    for at, (supervised, has) in enumerate(zip(wanted, covered, strict=True)):
        assert has or not supervised or text[at].isspace(), f"{text[:at]!r} ends the supervised part"


@pytest.mark.parametrize("kind", ["bytes", "nfc", "sentencepiece", "rstrip"])
@pytest.mark.parametrize("name", FORMS)
def test_text_and_mask_of_a_published_form(name: str, kind: str) -> None:
    form = FORMS[name]
    tokenizer = tokenizer_of(form, kind)
    assert_masked(form, tokenizer, ASK)
    assert_masked(form, tokenizer, MORE)
    if form.system:
        assert_masked(form, tokenizer, [("system", "Be brief."), *MORE])


@pytest.mark.parametrize("name", FORMS)
def test_the_end_of_turn_is_supervised_also_where_it_is_the_padding(name: str) -> None:
    form = FORMS[name]
    ends = {part for part, supervised in form.write(ASK) if supervised}
    tokenizer = tokenizer_of(form, pad=form.eos)
    found = encode(messages_of(MORE), tokenizer, 1000)
    supervised = [label for label in found.labels if label != IGNORED]
    [end] = {token for token in SPECIAL if any(text.endswith(token) for text in ends)}
    assert supervised.count(tokenizer.convert_tokens_to_ids(end)) == 2
    assert supervised[-1] == tokenizer.convert_tokens_to_ids(end)


CONTENT = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \n\t{}<>|'ab🙂"), min_size=1, max_size=40
)


@given(
    st.sampled_from(sorted(FORMS)),
    st.sampled_from(["bytes", "nfc", "sentencepiece", "rstrip"]),
    st.lists(CONTENT, min_size=2, max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_any_contents(name: str, kind: str, contents: list[str], system: bool, padded_by_the_end: bool) -> None:
    form = FORMS[name]
    tokenizer = tokenizer_of(form, kind, **({"pad": form.eos} if padded_by_the_end else {}))
    roles = ["user", "assistant"] * 3
    turns = [*([("system", "Be brief.")] if system and form.system else []), *zip(roles, contents, strict=False)]
    strips = name in ("llama 3", "gemma")
    answers = [text for role, text in turns if role == "assistant"]
    if all(text.strip() for _, text in turns) and not any(token in text for _, text in turns for token in SPECIAL):
        if strips and any(text != text.strip() for text in answers):
            with pytest.raises(InputError, match="strips whitespace"):
                encode(messages_of(turns), tokenizer, 10_000)
        else:
            assert_masked(form, tokenizer, turns)


@pytest.mark.parametrize("name", FORMS)
def test_published_forms_are_put_together_without_jinja(name: str) -> None:
    template = ChatTemplate(tokenizer_of(FORMS[name]))
    found = template.assembled(messages_of(MORE))
    assert found is not None
    by_jinja = template.jinja.rendered(messages_of(MORE))
    assert (found.text, found.answers) == (by_jinja.text, by_jinja.answers)


def test_a_system_turn_that_the_template_refuses() -> None:
    with pytest.raises(InputError, match=r"no system turns here.*put the system text at the beginning of the user"):
        encode(messages_of([("system", "Be brief."), *ASK]), tokenizer_of(FORMS["gemma"]), 1000)


def test_a_system_turn_that_the_template_drops() -> None:
    turn = "<|{{ m.role }}|>{{ m.content }}<|end|>"
    template = "{% for m in messages %}{% if m.role != 'system' %}" + turn + "{% endif %}{% endfor %}"
    form = Form(template, "<|end|>", "<s>", chatml)
    with pytest.raises(InputError, match=r"leaves out the system turn.*put the system text"):
        encode(messages_of([("system", "Be brief."), *ASK]), tokenizer_of(form), 1000)
    assert encode(messages_of(ASK), tokenizer_of(form), 1000).supervised


def test_an_answer_that_the_template_strips() -> None:
    tokenizer = tokenizer_of(FORMS["llama 3"])
    asked = messages_of([("user", " 1 + 2?\n"), ("assistant", "3")])
    assert (
        ChatTemplate(tokenizer).rendered(asked).text.count("1 + 2?<|eot_id|>") == 1
    )  # of a question, stripping loses nothing
    with pytest.raises(InputError, match="strips whitespace around its answer: strip the answer"):
        encode(messages_of([ASK[0], ("assistant", "    return 3\n")]), tokenizer, 1000)


def test_a_template_that_changes_earlier_turns() -> None:
    tokenizer = tokenizer_of(Form(THINKING, "<|im_end|>", "<s>", chatml))
    with pytest.raises(InputError, match="changes earlier turns: make one example of each answer"):
        encode(messages_of(MORE), tokenizer, 1000)
    found = encode(messages_of(ASK), tokenizer, 1000)
    supervised = tokenizer.decode([label for label in found.labels if label != IGNORED])
    assert supervised == ASK[1][1] + "<|im_end|>"  # not the empty thought, which the template wrote


def test_contents_that_a_template_looks_into_go_through_jinja() -> None:
    template = ChatTemplate(tokenizer_of(Form(THINKING, "<|im_end|>", "<s>", chatml)))
    thought = messages_of([ASK[0], ("assistant", "<think>Easy.</think>\n\n3")])
    assert content_triggers(THINKING) == ("</think>",)
    assert template.assembled(thought) is None
    assert "turn 1 (assistant)" in str(template.rendered(thought).fault)


def test_a_template_that_does_not_work_by_pieces_goes_through_jinja() -> None:
    template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content | length }}:{{ m.content }}<|end|>{% endfor %}"
    tokenizer = tokenizer_of(Form(template, "<|end|>", "<s>", chatml))
    assert ChatTemplate(tokenizer).assembled(messages_of(ASK)) is None
    assert ChatTemplate(tokenizer).rendered(messages_of([("user", "four"), ("assistant", "5")])).text == (
        "<|user|>4:four<|end|><|assistant|>1:5<|end|>"
    )
    found = encode(messages_of([("user", "four"), ("assistant", "5")]), tokenizer, 1000)
    assert tokenizer.decode([label for label in found.labels if label != IGNORED]).endswith("5<|end|>")


def test_a_rule_that_probes_cannot_see_is_found_on_real_rows() -> None:
    shouts = "{{ m.content | upper if m.content | length > 300 else m.content }}"
    template = f"{{% for m in messages %}}<|{{{{ m.role }}}}|>{shouts}<|end|>{{% endfor %}}"
    learned = ChatTemplate(tokenizer_of(Form(template, "<|end|>", "<s>", chatml)))
    long = messages_of([("user", "x" * 301), ("assistant", "3")])
    assert learned.assembled(messages_of(ASK)) is not None
    learned.verify([long])
    assert learned.assembled(messages_of(ASK)) is None
    assert "turn 0 (user)" in str(learned.rendered(long).fault)


@pytest.mark.parametrize(
    "deep", ["{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "{% if 1 %}" * 900 + "{% endif %}" * 900]
)
def test_a_template_nested_without_end_is_refused(deep: str) -> None:
    with pytest.raises(InputError, match="nested too deeply"):
        ChatTemplate(tokenizer_of(Form(deep, "<|end|>", "<s>", chatml)))


@pytest.mark.parametrize(("broken", "line"), [("{% if", 1), ("{{ bos_token }}\n{% for x in %}", 2), ("{% what %}", 1)])
def test_a_template_that_is_no_jinja_is_refused(broken: str, line: int) -> None:
    with pytest.raises(InputError, match=f"chat template is no Jinja: line {line}: "):
        ChatTemplate(tokenizer_of(Form(broken, "<|end|>", "<s>", chatml)))


def test_todays_date_never_gets_into_the_text() -> None:
    template = "{{ strftime_now('%d %b %Y') }}" + FORMS["chatml"].template
    tokenizer = tokenizer_of(Form(template, "<|im_end|>", "<s>", chatml))
    assert ChatTemplate(tokenizer).rendered(messages_of(ASK)).text.startswith("26 Jul 2024<|im_start|>user")


def test_the_mistral_form_is_byte_exact() -> None:
    template = ChatTemplate(tokenizer_of(FORMS["mistral"]))
    asked = messages_of([("user", "Say «é»\n"), ("assistant", "print('é')")])
    assert template.rendered(asked).text == "<s>[INST] Say «é»\n [/INST] print('é')</s>"
