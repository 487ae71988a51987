"""Models behind HTTP endpoints, OpenAI-compatible servers and Ollama: requests with retries and time limits."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from capibara_assets.errors import InputError
from capibara_assets.processes.supervise import doubled
from capibara_assets.storage.digests import combine
from capibara_assets.storage.jsonfiles import is_whole, well_formed

if TYPE_CHECKING:
    import httpx2

    from capibara_assets.evaluation.decoding import Decoding

Protocol = Literal["openai", "ollama"]
OPENAI_URL = "https://api.openai.com/v1"
OLLAMA_URL = "http://localhost:11434"
KEY = "CAPIBARA_ENDPOINT_KEY"
OPENAI_KEY = "OPENAI_API_KEY"  # goes to OpenAI's own address only
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_LARGEST_BODY = 8 << 20  # bytes of an answer with all that stands around it
_KEPT_HEADERS = ("retry-after", "content-type")
_LONGEST_WAIT_S = 60.0


class EndpointError(InputError):
    """An endpoint failed to answer, or its answer does not follow the protocol."""


@dataclass(frozen=True)
class Endpoint:
    """The address of a model behind HTTP, and how it is requested.

    Attributes:
        protocol: the form of its requests.
        url: the part before `/chat/completions` (OpenAI) or `/api/chat` (Ollama).
        model: its name there.
        timeout_s: of one request, until its last byte.
        attempts: requests for one answer; after the last one the evaluation ends, and can be resumed.
        first_wait_s: before the second attempt, doubled before each further one.
        concurrent: requests under way at once.
    """

    protocol: Protocol
    url: str
    model: str
    timeout_s: float = 120.0
    attempts: int = 5
    first_wait_s: float = 1.0
    concurrent: int = 4

    @property
    def identity(self) -> str:
        """Digest of protocol, address and model name; the model behind an address may still change."""
        return combine({"protocol": self.protocol, "url": self.url.rstrip("/"), "model": self.model})


@dataclass(frozen=True)
class Reply:
    """One answer of an endpoint; `tokens` is None where it does not count them."""

    text: str
    tokens: int | None
    finish: Literal["stop", "length"]


def client_of(endpoint: Endpoint) -> "httpx2.Client":
    """An HTTP client for an endpoint, to be closed; its key comes from the environment and goes to no other host."""
    import httpx2

    key = os.environ.get(KEY)
    if not key and urlsplit(endpoint.url).hostname == urlsplit(OPENAI_URL).hostname:
        key = os.environ.get(OPENAI_KEY)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx2.Client(headers=headers, timeout=endpoint.timeout_s, follow_redirects=False)


def reply(
    client: "httpx2.Client",
    endpoint: Endpoint,
    messages: Sequence[Mapping[str, str]],
    decoding: "Decoding",
    seed: int,
    wait: Callable[[float], None] = time.sleep,
) -> Reply:
    """Request one answer from an endpoint.

    Raises:
        EndpointError: the endpoint refuses the request, keeps failing, or answers empty or against its protocol.
    """
    path, body = _request(endpoint, messages, decoding, seed)
    return _read(endpoint, _sent(client, endpoint, path, body, wait))


def _request(
    endpoint: Endpoint, messages: Sequence[Mapping[str, str]], decoding: "Decoding", seed: int
) -> tuple[str, dict[str, Any]]:
    spoken = [dict(message) for message in messages]
    if endpoint.protocol == "openai":
        return "/chat/completions", {
            "model": endpoint.model,
            "messages": spoken,
            "max_tokens": decoding.max_new_tokens,
            "temperature": decoding.temperature,
            "top_p": decoding.top_p,
            "seed": seed % 2**31,  # some servers keep 32 bits
        }
    options = {
        "temperature": decoding.temperature,
        "top_p": decoding.top_p,
        "seed": seed % 2**31,
        "num_predict": decoding.max_new_tokens,
    }
    return "/api/chat", {"model": endpoint.model, "messages": spoken, "stream": False, "options": options}


def _sent(
    client: "httpx2.Client", endpoint: Endpoint, path: str, body: Mapping[str, Any], wait: Callable[[float], None]
) -> Any:
    """The JSON of the response, with retries."""
    import httpx2

    url, problem = endpoint.url.rstrip("/") + path, ""
    for attempt in range(endpoint.attempts):
        pause = doubled(endpoint.first_wait_s, attempt, _LONGEST_WAIT_S)
        try:
            response = _posted(client, url, body, endpoint.timeout_s)
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise EndpointError(f"{url}: {error}") from error
        except httpx2.RequestError as error:
            problem = f"{type(error).__name__}: {error}"
        else:
            if response.status_code == 200:
                try:
                    return response.json()
                except (ValueError, RecursionError) as error:
                    raise EndpointError(
                        f"{url} answers with something that is not JSON: {response.text[:200]}"
                    ) from error
            problem = f"HTTP {response.status_code}: {response.text[:300]}"
            if response.status_code not in _RETRIED:
                raise EndpointError(f"{url} refuses the request for model {endpoint.model}: {problem}{_hint(response)}")
            pause = _requested_pause(response, pause)
        if attempt + 1 < endpoint.attempts:
            wait(min(pause, _LONGEST_WAIT_S))
    raise EndpointError(
        f"{url} gave no answer in {endpoint.attempts} attempts ({problem}): start it, or try again later; the "
        "answers so far are kept"
    )


def _posted(client: "httpx2.Client", url: str, body: Mapping[str, Any], timeout_s: float) -> "httpx2.Response":
    """The response to a request, with its body: neither without end nor drop by drop.

    Raises:
        EndpointError: it is larger than any answer, or does not end in twice the time for its first byte.
    """
    import httpx2

    until, parts, size = time.monotonic() + 2 * timeout_s, list[bytes](), 0
    with client.stream("POST", url, json=dict(body)) as response:
        for part in response.iter_bytes():
            parts.append(part)
            size += len(part)
            if size > _LARGEST_BODY:
                raise EndpointError(f"{url} answers with more than {_LARGEST_BODY >> 20} MiB: no answer has as much")
            if time.monotonic() > until:
                raise EndpointError(f"{url} did not end its answer in {2 * timeout_s:g} s")
    headers = [(name, value) for name, value in response.headers.items() if name.lower() in _KEPT_HEADERS]
    return httpx2.Response(response.status_code, headers=headers, content=b"".join(parts))


def _hint(response: Any) -> str:
    if response.status_code in (401, 403):
        return f"; set {KEY} in the environment"
    return "; is the model's name right?" if response.status_code == 404 else ""


def _requested_pause(response: Any, otherwise: float) -> float:
    """Seconds of a Retry-After header, else `otherwise`."""
    seconds = response.headers.get("retry-after", "")
    return float(seconds) if seconds.replace(".", "", 1).isdigit() else otherwise


def _read(endpoint: Endpoint, body: Any) -> Reply:
    """The reply in a response body."""
    where = f"{endpoint.url} ({endpoint.model})"
    try:
        if endpoint.protocol == "openai":
            choice = body["choices"][0]
            text, reason = choice["message"].get("content"), choice.get("finish_reason")
            tokens = (body.get("usage") or {}).get("completion_tokens")
        else:
            text, reason = body["message"].get("content"), body.get("done_reason")
            tokens = body.get("eval_count")
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise EndpointError(f"{where} answers with no message in it: {str(body)[:300]}") from error
    if not (tokens is None or is_whole(tokens)):
        raise EndpointError(f"{where} counts {tokens!r} tokens: expected a whole number")
    if reason not in ("stop", "length"):
        raise EndpointError(f"{where} ended an answer for the reason {reason!r}: expected stop or length")
    if not isinstance(text, str) or (not text and not (reason == "stop" and tokens is not None and tokens <= 1)):
        more = ": all of its budget went elsewhere, raise max_new_tokens" if reason == "length" else ""
        raise EndpointError(f"{where} gave an empty answer of {tokens} tokens (finish {reason}){more}")
    return Reply(well_formed(text), tokens, reason)
