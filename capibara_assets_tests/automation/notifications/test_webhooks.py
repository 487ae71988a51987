"""Delivery to a real server: once, again where that may help, in bounded time, and never with the address in words."""

import socket

import pytest

from capibara_assets.automation.notifications.webhooks import ATTEMPTS, post
from capibara_assets_tests.automation.notifications.conftest import Receiver


def test_a_document_arrives_with_its_key(receiver: Receiver):
    assert post(receiver.url, {"a": "é"}, "check:1") is None
    assert receiver.got == [{"a": "é"}] and receiver.keys == ["check:1"]


def test_what_may_pass_is_tried_again_with_longer_pauses(receiver: Receiver):
    receiver.answers = [503, 429]
    pauses: list[float] = []
    assert post(receiver.url, {}, "k", pauses.append) is None
    assert pauses == [0.5, 1.0] and len(receiver.got) == 1


@pytest.mark.parametrize("status", [400, 404, 302])
def test_a_refusal_and_a_redirect_are_not_tried_again(receiver: Receiver, status: int):
    receiver.answers = [status]
    assert post(receiver.url, {}, "k", lambda _: None) == f"it answers with HTTP {status}"
    assert receiver.got == []


def test_it_gives_up_and_does_not_say_the_address(receiver: Receiver):
    receiver.answers = [500] * ATTEMPTS
    assert post(receiver.url, {}, "k", lambda _: None) == "it answers with HTTP 500, 3 times"
    with socket.socket() as bound:  # nobody listens there
        bound.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{bound.getsockname()[1]}/s3cret"
        assert post(away, {}, "k", lambda _: None) == "it cannot be reached (ConnectionRefusedError), 3 times"
    for wrong in ("ftp://host/s3cret", "s3cret", "http://[s3cret", "http://ho st:s3cret/"):
        problem = post(wrong, {}, "k", lambda _: None)
        assert problem and "s3cret" not in problem
