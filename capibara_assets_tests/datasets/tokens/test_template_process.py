"""Foreign chat templates: the same text as Transformers gives, and an end in a sentence where one takes too much."""

import os
import time
from pathlib import Path

import jinja2
import pytest

from capibara_assets.datasets.tokens import template_process
from capibara_assets.datasets.tokens.template_process import LONGEST_TEMPLATE, require_short, shipped_templates
from capibara_assets.datasets.tokens.templates_jinja import JinjaTemplate
from capibara_assets.errors import InputError

TURNS = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": 'What is <b>1 + 1</b> & "é漢🙂"?\n'},
    {"role": "assistant", "content": "2"},
]
PLAIN = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content | trim }}{{ eos }}\n{% endfor %}"
MARKED = (
    "{%- for m in messages -%}{%- if m.role == 'assistant' -%}<a>{% generation %}{{ m.content }}</a>{% endgeneration %}"
    "{%- else -%}<{{ m.role }}>{{ m.content | tojson }}{%- endif -%}{%- endfor -%}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)
BOMBS = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops over a variable": "{% set r = range(99999) %}"
    "{% for i in r %}{% for j in r %}{% set x = j %}{% endfor %}{% endfor %}",
    "a text times a number": "{{ 'a' * 10**11 }}",
    "a folded constant": "{{ 'ab' * (9 ** 9) * 100 }}",
    "a list times a number": "{{ ([0] * 10**11) | length }}",
    "a power": "{{ 9 ** (9 ** 9) }}",
    "doubling": "{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    "doubling a list": "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "escapes of escapes": "{% set n = namespace(x='\"') %}"
    "{% for i in range(60) %}{% set n.x = n.x | tojson %}{% endfor %}",
    "a macro that calls itself twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "a width": "{{ '%0999999999d' % 1 }}{{ '%0999999999d' % 1 }}",
    "a width of format": "{{ '{:>4000000000}'.format(1) }}",
    "padding": "{{ 'a'.ljust(10 ** 11) }}",
    "centring": "{{ 'a' | center(10 ** 11) }}",
    "indenting": "{{ {'a': [1, [2]]} | tojson(indent=10 ** 10) }}",
    "replacing": "{% set x = 'a' * 90000 %}{{ x.replace('a', x) }}",
    "joining": "{{ range(99999) | join('a' * 99999) }}",
    "words": "{{ lipsum(n=10 ** 7) }}",
    "batches": "{{ [1] | batch(10 ** 10, 0) | list | length }}",
    "a block of text": "{% set x %}{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}{% endset %}"
    "{{ x | length }}",
    "much output": "{% for i in range(99999) %}{{ 'a' * 999 }}{% endfor %}",
}
SHORT = ("a text times a number", "doubling", "a power", "much output")


def theirs(text: str, generation_prompt: bool = False) -> tuple[str, list[tuple[int, int]]]:
    from transformers.utils.chat_template_utils import render_jinja_template

    marked = "generation %}" in text
    texts, marks = render_jinja_template(
        conversations=[TURNS],
        chat_template=text,
        return_assistant_tokens_mask=marked,
        add_generation_prompt=generation_prompt,
        eos="</s>",
    )
    return texts[0], marks[0] if marked else []


@pytest.mark.parametrize("text", [PLAIN, MARKED, "{{ messages | length }}{% set ns = namespace(a=1) %}{{ ns.a }}"])
def test_the_text_is_that_of_transformers(text: str) -> None:
    template = JinjaTemplate(text, {"eos": "</s>"}, ())
    assert text not in shipped_templates()
    assert template.marks_of(TURNS) == theirs(text)
    assert template.text_of(TURNS, generation_prompt=True) == theirs(text, generation_prompt=True)[0]


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.extended) for name in BOMBS]
)
def test_what_takes_too_much_is_refused_and_the_next_one_is_not(name: str) -> None:
    """Within two seconds of processor time, of this process nearly none; asked again it is refused at once."""
    template = JinjaTemplate(BOMBS[name], {}, ())
    JinjaTemplate(PLAIN, {"eos": ""}, ()).text_of(TURNS)  # the process is there
    begun, own = os.times().children_user, time.process_time()
    with pytest.raises(jinja2.TemplateError) as refused:
        template.text_of(TURNS)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 200, refused.value
    assert os.times().children_user - begun < 4 and time.process_time() - own < 0.5
    if "processor time" in str(refused.value):
        again = time.monotonic()
        with pytest.raises(jinja2.TemplateError, match="more than 1 s of processor time"):
            template.text_of(TURNS)
        assert time.monotonic() - again < 0.1
    assert JinjaTemplate(PLAIN, {"eos": ""}, ()).text_of(TURNS).startswith("<|system|>\nBe brief.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ raise_exception('only users') }}", "only users"),
        ("{{ 1 + 'a' }}", "TypeError unsupported operand"),
        ("{% if %}", "Expected an expression"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        (r'{{ "\ud800" }}', "it writes half of a character"),
    ],
)
def test_what_a_template_raises_is_its_refusal(text: str, said: str) -> None:
    with pytest.raises(jinja2.TemplateError, match=said):
        JinjaTemplate(text, {}, ()).text_of(TURNS)


def test_the_process_writes_no_file_and_has_no_variable_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would stand between an escape from the sandbox and the machine."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "kT9x2LmQ8vR4wZ7p")
    template_process._PROCESS.close()
    JinjaTemplate(PLAIN, {"eos": ""}, ()).text_of(TURNS)
    process = template_process._PROCESS._process
    assert process is not None
    about = Path(f"/proc/{process.pid}")
    if not about.is_dir():
        pytest.skip("no /proc on this machine")
    assert b"kT9x2LmQ8vR4wZ7p" not in (about / "environ").read_bytes()
    limits = (about / "limits").read_text()
    assert [line.split()[-3] for line in limits.splitlines() if line.startswith(("Max file size", "Max core"))] == [
        "0",
        "0",
    ]


def test_a_template_longer_than_any_is_not_parsed() -> None:
    assert require_short("a" * LONGEST_TEMPLATE)
    with pytest.raises(InputError, match=r"has 262145 characters, more than 262144: use another template"):
        require_short("a" * (LONGEST_TEMPLATE + 1))


def test_the_template_that_ships_needs_no_process(nano: Path) -> None:
    template_process._PROCESS.close()
    text = (nano / "chat_template.jinja").read_text("utf-8")
    assert text in shipped_templates()
    assert "Be brief." in JinjaTemplate(text, {}, ()).text_of(TURNS)
    assert template_process._PROCESS._process is None
