"""Endpoints: a real HTTP server that answers, fails for a while, refuses, or answers with nothing."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from capibara_assets.evaluation.answering.answer import Answer, answer_items
from capibara_assets.evaluation.contenders.contenders import EndpointContender, Framing
from capibara_assets.evaluation.contenders.endpoints import Endpoint, EndpointError, Reply, client_of, reply
from capibara_assets.evaluation.contenders.named import contender_of
from capibara_assets.evaluation.decoding import Decoding
from capibara_assets_tests.served import QuietHandler, served

ASK = [{"role": "user", "content": "Say four."}]


@dataclass
class Server:
    """Replies in order; the last one for ever."""

    url: str = ""
    replies: Sequence[tuple[int, Any]] = ()
    requests: list[tuple[str, dict[str, Any], dict[str, str]]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with state.lock:
                state.requests.append((self.path, body, {k.lower(): v for k, v in self.headers.items()}))
                status, found = state.replies[min(len(state.requests), len(state.replies)) - 1]
            found = found(body) if callable(found) else found
            if status == 0:  # hangs up
                return
            data = found.encode() if isinstance(found, str) else json.dumps(found).encode()
            self.send_response(status)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with served(Handler) as listening:
        state.url = f"http://127.0.0.1:{listening.server_port}"
        yield state


def openai(text: Any, tokens: int | None = 3, reason: str = "stop") -> dict[str, Any]:
    usage = {} if tokens is None else {"usage": {"completion_tokens": tokens}}
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": reason}], **usage}


def ollama(text: str, tokens: int = 3, reason: str = "stop") -> dict[str, Any]:
    return {
        "message": {"role": "assistant", "content": text},
        "done": True,
        "done_reason": reason,
        "eval_count": tokens,
    }


def asked(server: Server, waits: list[float] | None = None, **values: Any) -> Reply:
    endpoint = Endpoint("openai", f"{server.url}/v1", "m", timeout_s=5, **values)
    with client_of(endpoint) as client:
        return reply(
            client, endpoint, ASK, Decoding(max_new_tokens=9), 7, wait=[].append if waits is None else waits.append
        )


def test_an_openai_server_gets_the_decoding_and_its_answer_is_taken(server: Server):
    server.replies = [(200, openai("four"))]
    endpoint = Endpoint("openai", f"{server.url}/v1/", "m")
    with client_of(endpoint) as client:
        decoding = Decoding(max_new_tokens=9, temperature=0.5, top_p=0.9)
        assert reply(client, endpoint, ASK, decoding, 2**40 + 7) == Reply("four", 3, "stop")
    path, body, headers = server.requests[0]
    assert path == "/v1/chat/completions" and "authorization" not in headers
    assert body == {
        "model": "m", "messages": ASK, "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "seed": 7,
    }  # fmt: skip


def test_an_ollama_server_gets_its_own_form(server: Server):
    server.replies = [(200, ollama("four", 9, "length"))]
    endpoint = Endpoint("ollama", server.url, "qwen:1b")
    with client_of(endpoint) as client:
        assert reply(client, endpoint, ASK, Decoding(max_new_tokens=9), 7) == Reply("four", 9, "length")
    path, body, _ = server.requests[0]
    assert path == "/api/chat" and body["stream"] is False and body["model"] == "qwen:1b"
    assert body["options"] == {"temperature": 0.0, "top_p": 1.0, "seed": 7, "num_predict": 9}


def test_what_passes_is_tried_again_with_longer_and_longer_waits(server: Server):
    server.replies = [(503, "busy"), (0, ""), (429, "slow down"), (200, openai("four"))]
    waits: list[float] = []
    assert asked(server, waits).text == "four"
    assert waits == [1.0, 2.0, 4.0] and len(server.requests) == 4


def test_retry_after_is_kept_to_within_reason(server: Server):
    server.replies, server.headers = [(429, "slow down"), (429, ""), (200, openai("four"))], {"retry-after": "7"}
    waits: list[float] = []
    assert asked(server, waits).text == "four" and waits == [7.0, 7.0]
    server.headers["retry-after"], server.requests = "86400", []
    waits.clear()
    assert asked(server, waits).text == "four" and waits == [60.0, 60.0]


def test_what_does_not_pass_is_an_error_that_says_what_was_answered(server: Server):
    server.replies = [(500, "out of order")]
    with pytest.raises(EndpointError, match=r"no answer in 3 attempts \(HTTP 500: out of order\)"):
        asked(server, attempts=3)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("status", "found", "match"),
    [
        (401, "who are you", "CAPIBARA_ENDPOINT_KEY"),
        (404, "no such model", "name right"),
        (400, "context too long", "context too long"),
        (200, "<html>", "not JSON"),
        (200, {"error": "x"}, "no message in it"),
        (200, openai(""), "empty answer of 3 tokens"),
        (200, openai(None, 9, "length"), "raise max_new_tokens"),
        (200, openai("", None), "empty answer"),
        (200, openai("partial", 3, "content_filter"), "content_filter"),
        *(
            (200, openai(text, odd), "tokens: expected a whole number")  # type: ignore[arg-type]
            for text in ("x", "")
            for odd in ("3", [1], float("inf"), -5, True, 10**4000 // 10**3980, 2.5)
        ),
        (200, "[" * 100_000, "not JSON"),
    ],
)
def test_no_answer_is_made_up(server: Server, status: int, found: Any, match: str):
    server.replies = [(status, found)]
    with pytest.raises(EndpointError, match=match):
        asked(server)
    assert len(server.requests) == 1


def test_half_a_character_is_an_answer(server: Server):
    """Servers cut what they send between the halves of an emoji; no table could hold it."""
    server.replies = [(200, '{"choices": [{"message": {"content": "a\\ud83db"}, "finish_reason": "stop"}]}')]
    assert asked(server) == Reply("a\ufffdb", None, "stop")


def test_what_cannot_be_decoded_is_an_error(server: Server):
    server.replies, server.headers = [(200, "no gzip")], {"content-encoding": "gzip"}
    with pytest.raises(EndpointError, match="DecodingError"):
        asked(server)


def test_a_model_that_ends_at_once_has_answered(server: Server):
    server.replies = [(200, openai("", 1))]
    assert asked(server) == Reply("", 1, "stop")


def test_a_server_that_is_not_there_is_an_error():
    endpoint = Endpoint("openai", "http://127.0.0.1:9", "m", attempts=2, first_wait_s=0.0)
    with client_of(endpoint) as client, pytest.raises(EndpointError, match="ConnectError"):
        reply(client, endpoint, ASK, Decoding(), 0)


def test_the_key_comes_from_the_environment_and_openais_goes_to_openai_only(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    server.replies = [(200, openai("four"))]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-theirs")
    asked(server)
    monkeypatch.setenv("CAPIBARA_ENDPOINT_KEY", "ours")
    asked(server)
    assert [headers.get("authorization") for _, _, headers in server.requests] == [None, "Bearer ours"]
    monkeypatch.delenv("CAPIBARA_ENDPOINT_KEY")
    with client_of(Endpoint("openai", "https://api.openai.com/v1", "m")) as client:
        assert client.headers["authorization"] == "Bearer sk-theirs"


@dataclass(frozen=True)
class Item:
    item_id: str
    prompt: tuple[dict[str, str], ...]
    reference: str = ""


def items(count: int) -> list[Item]:
    return [Item(f"i{n}", ({"role": "user", "content": f"Say {n}."},)) for n in range(count)]


def echo(body: dict[str, Any]) -> Any:
    return openai(f"{body['messages'][-1]['content']} {body['seed']}")


def test_a_contender_behind_http_answers_every_item_once(server: Server, tmp_path: Any):
    server.replies = [(200, echo)]
    contender = contender_of(f"{server.url}/v1#m", name="remote")
    assert isinstance(contender, EndpointContender)
    decoding = Decoding(max_new_tokens=9, temperature=1.0, samples=2)
    found = answer_items(contender, items(5), decoding, tmp_path / "j.jsonl")
    assert [(a.contender, a.item_id, a.sample) for a in found.answers] == [
        ("remote", f"i{n}", s) for n in range(5) for s in range(2)
    ]
    assert all(a.text.startswith(f"Say {a.item_id[1:]}.") for a in found.answers)
    assert len({a.text for a in found.answers}) == 10 and found.speed.answers == 10 and found.speed.tokens == 30
    again = answer_items(contender, items(6), decoding, tmp_path / "j.jsonl")
    assert again.answers[:10] == found.answers and len(server.requests) == 12


def test_answers_before_a_failure_are_kept(server: Server, tmp_path: Any):
    def sometimes(body: dict[str, Any]) -> Any:
        return openai("yes") if body["messages"][-1]["content"] in ("Say 0.", "Say 1.") else {"error": "odd"}

    server.replies = [(200, sometimes)]
    endpoint = Endpoint("openai", server.url, "m", concurrent=1)
    contender = EndpointContender("remote", endpoint, Framing(system="Be short."))
    with pytest.raises(EndpointError, match="no message"):
        answer_items(contender, items(4), Decoding(), tmp_path / "j.jsonl")
    assert server.requests[0][1]["messages"][0] == {"role": "system", "content": "Be short."}
    kept = {json.loads(line)["item_id"] for line in (tmp_path / "j.jsonl").read_text().splitlines()}
    assert kept == {"i0", "i1"}
    server.replies, server.requests = [(200, openai("yes"))], []
    found = answer_items(contender, items(4), Decoding(), tmp_path / "j.jsonl").answers
    assert len(server.requests) == 4 - len(kept)
    assert all(isinstance(answer, Answer) and answer.text == "yes" for answer in found)


@pytest.mark.parametrize(
    ("piece", "pause_s", "says"),
    [(b" " * 65_536, 0.0, "more than 8 MiB"), (b" ", 0.05, "did not end its answer in 0.6 s")],
    ids=["without end", "drop by drop"],
)
def test_an_answer_that_does_not_end_is_given_up(piece: bytes, pause_s: float, says: str) -> None:
    class Flood(QuietHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            for _ in range(400):
                try:
                    self.wfile.write(piece)
                except OSError:  # the client is gone
                    return
                time.sleep(pause_s)

    with served(Flood) as listening:
        endpoint = Endpoint("openai", f"http://127.0.0.1:{listening.server_port}", "m", timeout_s=0.3)
        with client_of(endpoint) as client, pytest.raises(EndpointError, match=says):
            reply(client, endpoint, ASK, Decoding(), 1)
