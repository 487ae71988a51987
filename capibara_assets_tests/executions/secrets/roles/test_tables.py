"""Columns of credentials, wherever they stand in a table, and columns that only look like them."""

import pytest

from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import redacted

TOKEN = "d1g4hj6kp9sf3aqe0uq8zr2lwn5t"
PLACES = {
    "CSV": ("host,user,password,since\nmx1,ops,{},2025-01-02", "lantern.over.copper"),
    "CSV with quotes and empty cells": ('"user","pw","mail"\n"ops","","a@x.invalid"\n"ana","{}",""', "Harbor_4821"),
    "a semicolon": ("password;user\n{};ops", "copper-lantern-19"),
    "Markdown": ("| user | password | note |\n|---|---|---|\n| ops | {} | old |", "Harbor.4821.x"),
    "a console": (" id | api_key | plan\n----+---------+------\n  7 | {} | free\n(1 row)", TOKEN),
    "a frame": ("┃ name ┃ token ┃ uses ┃\n┡━━━━━━╇━━━━━━━╇━━━━━━┩\n│ ci   │ {} │ 3    │", TOKEN),
    "columns of blanks": ("USER   PASSWORD          HOST\nops    {}   mx1", "copper-lantern-19"),
    "a data frame": ("   user           password\n0   ops  {}", "copper-lantern-19"),
    "the twentieth row": ("user,password\n" + "ops,Harbor-4821\n" * 19 + "ana,{}", "Meadow-1199x"),
    "INSERT": ("INSERT INTO staff (name, password, age) VALUES\n ('Ops', 'x', 1),\n ('Ana', '{}', 2);", "Harbor#4821"),
    "COPY": ("COPY staff (name, secret) FROM stdin;\nops\t{}\n\\.", TOKEN),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_the_cell_under_the_name_is_covered_and_its_neighbours_stay(place: str) -> None:
    template, value = PLACES[place]
    before, after = template.split("{}")
    left = redacted(template, value)
    assert left.endswith(after)
    assert left.split("\n")[0] == before.split("\n")[0]


@pytest.mark.parametrize(
    "text",
    [
        "token,lemma\nwell-known-fact,x-ray-two\nsub-word-12,y",
        "user,password_hash_kind\nops,argon-two-id9",
        "     11     pass\n     12     return b64decode1(x)",
        "    user,\n    password,\n    address-line-1,\n",
        "from auth import login, password\nfrom forms import field12, widget34",
        "Name, password\nand a sentence, with more, than two cells1",
        "INSERT INTO t (token_count, name) VALUES (12, 'step-two-b7')",
    ],
)
def test_other_columns_are_kept(text: str) -> None:
    assert redact_text(text) == text
