"""The corpus: permissive sources only, nothing twice, a split by content, the same documents each time."""

import ast
from collections import Counter
from email.message import Message
from itertools import islice

import pytest

from workshop.base_model import corpus as corpora
from workshop.base_model.corpus import (
    LANGUAGES,
    Corpus,
    Document,
    build_corpus,
    documented_functions,
    package_documents,
    permissive_licence,
    standard_library,
)

_PACKAGES = ("click", "packaging", "no-such-distribution-on-any-machine")


def built(seed: int = 0) -> Corpus:
    """Of a part of the library: its tests are chosen by digest, so all would be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora, "standard_library", lambda tests: islice(standard_library(tests), 60))
        return build_corpus(400_000, seed, _PACKAGES)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return built()


def _metadata(**fields: str) -> Message:
    message = Message()
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    return message


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ({"License_Expression": "MIT"}, "MIT"),
        ({"License_Expression": "BSD-3-Clause AND MIT"}, "BSD-3-Clause AND MIT"),
        ({"License_Expression": "(Apache-2.0 OR BSD-2-Clause)"}, "(Apache-2.0 OR BSD-2-Clause)"),
        ({"License_Expression": "MIT AND GPL-3.0-only"}, None),
        ({"License_Expression": "MPL-2.0"}, None),
        ({"Classifier": "License :: OSI Approved :: BSD License"}, "BSD"),
        ({"Classifier": "License :: OSI Approved :: GNU General Public License v3 (GPLv3)"}, None),
        ({"License": "Apache 2.0 License"}, "Apache-2.0"),
        ({"License": "BSD 3-Clause License"}, "BSD"),
        ({"License": "Proprietary, not MIT"}, None),
        ({"License": "GPL"}, None),
        ({}, None),
    ],
)
def test_licence(fields: dict[str, str], licence: str | None) -> None:
    assert permissive_licence(_metadata(**fields)) == licence


def test_an_absent_package_gives_nothing() -> None:
    assert package_documents("no-such-distribution-on-any-machine", ".py", "python") == ([], None)


def test_a_package_under_another_licence_gives_nothing() -> None:
    """hypothesis is under MPL-2.0."""
    assert package_documents("hypothesis", ".py", "python") == ([], None)


@pytest.mark.extended
def test_shares(corpus: Corpus) -> None:
    size = Counter[str]()
    for document in (*corpus.training, *corpus.held_out):
        size[document.language] += len(document.text.encode())
    total = sum(size.values())
    for language, share in zip(LANGUAGES, (0.75, 0.12, 0.08, 0.05), strict=True):
        assert size[language] / total == pytest.approx(share, abs=0.12)


def test_nothing_twice_and_a_split_by_content(corpus: Corpus) -> None:
    digests = [document.digest for document in (*corpus.training, *corpus.held_out)]
    assert len(set(digests)) == len(digests)
    assert all(document.held_out for document in corpus.held_out)
    assert not any(document.held_out for document in corpus.training)
    assert len(corpus.held_out) / len(digests) == pytest.approx(0.02, abs=0.015)


def test_the_hold_out_lends_no_function_to_a_conversation(corpus: Corpus) -> None:
    lent = [code for document in corpus.held_out for _, code in documented_functions(document.text)]
    told = "".join(document.text for document in corpus.training if document.language == "chat")
    allowed = [code for document in corpus.training for _, code in documented_functions(document.text)]
    assert [code for code in lent if code in told and code not in allowed] == []


def test_the_same_documents_in_the_same_order(corpus: Corpus) -> None:
    assert built() == corpus


@pytest.mark.extended
def test_another_seed_another_corpus(corpus: Corpus) -> None:
    other = built(1)
    assert {d.text for d in other.training if d.language == "sql"}.isdisjoint(
        d.text for d in corpus.training if d.language == "sql"
    )


def test_sources_add_up_and_name_licences(corpus: Corpus) -> None:
    documents = (*corpus.training, *corpus.held_out)
    assert sum(source.documents for source in corpus.sources) == len(documents)
    assert sum(source.bytes for source in corpus.sources) == sum(len(d.text.encode()) for d in documents)
    assert all(source.licence for source in corpus.sources)
    named = {source.name for source in corpus.sources}
    assert {"click", "packaging", "python-standard-library", "generated-sql", "generated-javascript"} <= named


def test_documented_functions() -> None:
    source = '''
def documented(items):
    """Return the items that come twice or more.

    More words that are not needed.
    """
    counts = {item: items.count(item) for item in items}
    return [item for item in counts if counts[item] > 1]


def silent(x):
    return [x] * 100000000000000000000000000000000000000000000000


class Box:
    def open(self, key):
        """Open the box with its key, or say why not."""
        if key != self.key:
            raise ValueError("the key does not fit this box")
        return self.content
'''
    found = dict(documented_functions(source))
    assert list(found) == [
        "Return the items that come twice or more.",
        "Open the box with its key, or say why not.",
    ]
    for code in found.values():
        (function,) = ast.parse(code).body
        assert isinstance(function, ast.FunctionDef)
        assert ast.get_docstring(function) is None
    assert list(documented_functions("def broken(:")) == []


def test_held_out_depends_on_the_text_alone() -> None:
    for text in ("a", "b", "c"):
        assert Document("python", "x", text).held_out == Document("sql", "y", text).held_out
