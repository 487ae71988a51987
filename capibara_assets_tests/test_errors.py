"""Words of errors: on one line and bounded, whatever names out of files are in them."""

import errno
import pickle

import pytest

from capibara_assets.errors import REMEDIES, InputError, IntegrityError, causes, named, remedy_behind


@pytest.mark.parametrize("kind", [InputError, IntegrityError])
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("w\nsecond line", "w\\nsecond line"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("a\r\tb", "a\\r\\tb"),
        ("\u202egpj", "\\u202egpj"),
        ("\u2028\x85", "\\u2028\\x85"),
        ("\ud800", "\\ud800"),
        ("größe …", "größe …"),
    ],
)
def test_a_message_is_one_line(kind: type[Exception], name: str, shown: str) -> None:
    error = kind(f"{name} is damaged")
    assert str(error) == f"{error}" == str(pickle.loads(pickle.dumps(error))) == f"{shown} is damaged"


def test_a_message_is_bounded_and_keeps_what_to_do() -> None:
    said = str(InputError("w" * 900_000 + ": copy it again"))
    assert len(said) <= 2010 and said.startswith("www") and said.endswith("w: copy it again")
    assert str(InputError("w" * 2000)) == "w" * 2000


def test_a_name_is_printable_and_cut() -> None:
    assert named("model.layers.0") == "model.layers.0"
    assert named("a\nb\x9b") == "a\\nb\\x9b"
    assert named("n" * 160) == "n" * 160 and named("n" * 161) == "n" * 160 + " …"
    assert len(named("\n" * 900_000)) == 162


def test_an_error_that_is_its_own_cause_is_looked_at_once() -> None:
    error, other = OSError(errno.ENOENT, "none"), OSError(errno.EMFILE, "too many")
    error.__cause__ = error
    assert list(causes(error)) == [error] and remedy_behind(error) == ""
    other.__cause__, error.__cause__ = error, other
    assert remedy_behind(error) == REMEDIES[errno.EMFILE]
