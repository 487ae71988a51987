"""Sessions of kinds that no shared log holds, and what must not be taken for them."""

from collections import Counter

import pytest

from capibara_assets.domains import Domain
from capibara_assets.executions.labels.classify import classify_session
from capibara_assets_tests.executions.conftest import executed, recorded
from capibara_assets_tests.executions.left_out_sessions import SESSIONS


@pytest.mark.parametrize("name", SESSIONS)
def test_the_session_is_told(name: str) -> None:
    domain, cells = SESSIONS[name]
    labels = classify_session([recorded(code) for code in cells])
    votes = Counter(label.domains[0] for label in labels if label.domains)
    assert votes.most_common(1)[0][0] == domain, labels[0].evidence


@pytest.mark.parametrize("name", SESSIONS)
def test_half_of_a_session_is_mostly_enough(name: str) -> None:
    """A log may begin in the middle: the later half alone is the session's domain or plain Python, nothing else."""
    domain, cells = SESSIONS[name]
    labels = classify_session([recorded(code) for code in cells[len(cells) // 2 :]])
    assert {label.domains[0] for label in labels if label.domains} <= {domain, Domain.PYTHON}


def test_the_traceback_tells_the_library() -> None:
    frames = "File /usr/local/lib/python3.11/site-packages/{}\n"
    traceback = frames.format("psycopg/cursor.py:97") + frames.format("psycopg/errors.py:3")
    failing = recorded("load(orders)", execution=executed(error=("UndefinedTable", "orders", traceback)))
    cells = [failing, *[recorded(f"load(orders_{n})", execution_id=str(n)) for n in range(2)]]
    assert "traceback through psycopg x1 (sql)" in classify_session(cells)[0].evidence


def test_a_cell_that_only_uses_a_helper_names_the_library_behind_it() -> None:
    _, cells = SESSIONS["a model's API behind helpers"]
    labels = classify_session([recorded(code) for code in cells])
    assert "made by openai" in labels[-1].evidence
    assert labels[-1].domains == (Domain.API,)


@pytest.mark.parametrize(
    ("code", "domains"),
    [
        ("const r = await fetch('https://example.org/a')\nr.json()", (Domain.JAVASCRIPT, Domain.API)),
        (
            "const express = require('express')\nconst app = express()\napp.get('/', f)",
            (Domain.JAVASCRIPT, Domain.API),
        ),
        ("import axios from 'axios'\naxios.post('/login', { name })", (Domain.JAVASCRIPT, Domain.API)),
        ("const { Pool } = require('pg')\npool.query('SELECT a FROM b')", (Domain.JAVASCRIPT, Domain.SQL)),
        ("const seen = new Map()\nseen.get('a')\nrequire('lodash')", (Domain.JAVASCRIPT,)),
        ("console.log('select one from these')", (Domain.JAVASCRIPT,)),
    ],
)
def test_javascript_may_call_services_and_databases(code: str, domains: tuple[Domain, ...]) -> None:
    (label,) = classify_session([recorded(code, language="javascript")])
    assert label.domains == domains


def test_sql_sent_as_python_is_sql() -> None:
    (label,) = classify_session([recorded("SELECT a, b FROM t WHERE c > 1 ORDER BY a")])
    assert label.domains == (Domain.SQL,)
