"""Secrets that code puts together from literals, of which every piece goes, and ordinary literals that are joined."""

import pytest

from capibara_assets.executions.secrets.redact import redact_text
from capibara_assets_tests.executions.secrets.places import covered_whole

PASSWORDS = (
    "ALTER USER ops IDENTIFIED BY 'Mead' || '{}';",
    "CREATE ROLE ops PASSWORD 'Mead' || '{}';",
    "ALTER LOGIN ops WITH PASSWORD = N'Mead' + N'{}'",
    "db_password = b'Mead' + b'{}'",
    "password = CONCAT('Mead', '{}')",
    "password = concat_ws('', 'Mead', '{}')",
    "password = ''.join(['Mead', '{}'])",
    'password = ["Mead", "{}"].join("")',
    "password = 'Mead'.concat('{}')",
    "password <- paste0('Mead', '{}')".replace("<-", "="),
    "password = 'Mead' ++ '{}'",
    "password = 'Mead' ~\n   '{}'",
    "PASSWORD='Mead'\"{}\"",
)
TOKENS = (
    'api_secret = "{}" + "bTrQwGowvxhJsYcX"',
    'api_secret = "bTrQwGowvxhJsYcX" + "{}"',
    "auth_token = concat('bTrQwGowvxhJsYcX', '{}')",
)


@pytest.mark.parametrize("place", PASSWORDS)
def test_a_password_in_pieces_goes_whole(place: str) -> None:
    covered_whole(place, "ow#2719")
    assert "Mead'" not in redact_text(place.replace("{}", "ow#2719"))


@pytest.mark.parametrize("place", TOKENS)
def test_no_piece_of_a_token_stays(place: str) -> None:
    covered_whole(place, "w3KdPq8ZtVn5RbLx")
    assert "bTrQwGowvxhJsYcX" not in redact_text(place.replace("{}", "w3KdPq8ZtVn5RbLx"))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'Mr. ' || 'Meadow27' AS name",
        "password_label = 'Enter' + 'Password'",
        "password: 'text' || 'hidden'",
        "token_url = 'https://id' + '.host27.invalid/token'",
        "token = 'bos' + '_' + 'eos'",
        "fields = ['password', 'token', 'address27']",
        "secret_names = ['db', 'mail27']",
        "assert password == 'a', 'b27cdefg'",
    ],
)
def test_other_literals_that_are_joined_stay(text: str) -> None:
    assert redact_text(text) == text
