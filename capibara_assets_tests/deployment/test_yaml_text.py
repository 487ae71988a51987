"""Hostile YAML: it ends neither the process nor the memory, whichever reader takes it."""

import pytest
import yaml

from capibara_assets.deployment.yaml_text import holds_at_most, load_yaml
from capibara_assets.executions.formats.agents.hosted import api_cassettes
from capibara_assets.executions.formats.agents.programs import taskweaver
from capibara_assets.executions.formats.agents.runs import LogDocument, Reader

ROUNDS = "rounds:\n- user_query: a\n  post_list:\n  - attachment_list: {}\n"
CASSETTE = "interactions:\n- request: {{}}\n  response: {}  # code_interpreter_call\n"
NESTED = "[" * 100_000 + "]" * 100_000
NESTED_LINES = NESTED.replace("[", "[\n")  # as deep; the slow parser, which raises, takes a tenth of the time
LAUGHS = "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 40)}]\n" for i in range(1, 7))


@pytest.mark.parametrize(("reader", "text"), [(taskweaver.READER, ROUNDS), (api_cassettes.READER, CASSETTE)])
@pytest.mark.parametrize("hostile", [NESTED_LINES, "*x6"])
def test_it_is_read_in_no_time_or_not_at_all(reader: Reader, text: str, hostile: str) -> None:
    document = LogDocument(f"x0: &x0 [a]\n{LAUGHS}{text.format(hostile)}".encode())
    assert any(mark in document.data for mark in reader.marks)
    assert not reader.reads(document) and not [*reader.entries(document)][1:]


def test_a_value_holds_what_its_aliases_repeat() -> None:
    assert holds_at_most(load_yaml("a: [1, {b: 2}]"), 4) and not holds_at_most(load_yaml("a: [1, {b: 2}]"), 3)
    assert not holds_at_most(load_yaml("&a [*a]"), 1_000_000)


@pytest.mark.parametrize(
    "text", ["a: [", "due: 2026-13-45", "a: !!bool maybe", "a: !!int x", "a: !!timestamp x", "a: &a [*b]", NESTED]
)
def test_what_is_no_yaml_has_one_error(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_yaml(text)
