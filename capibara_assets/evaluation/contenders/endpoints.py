"""Models behind HTTP: OpenAI-compatible servers and Ollama, with retries, time limits, and no answer made up."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from capibara_assets.errors import InputError
from capibara_assets.storage.digests import combine

if TYPE_CHECKING:
    import httpx2

    from capibara_assets.evaluation.decoding import Decoding

Protocol = Literal["openai", "ollama"]
OPENAI_URL = "https://api.openai.com/v1"
OLLAMA_URL = "http://localhost:11434"
KEY = "CAPIBARA_ENDPOINT_KEY"
OPENAI_KEY = "OPENAI_API_KEY"  # goes to OpenAI's own address only
_RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_LONGEST_WAIT_S = 60.0


class EndpointError(InputError):
    """An endpoint that did not answer, or not as its protocol says."""


@dataclass(frozen=True)
class Endpoint:
    """Where a model answers.

    Attributes:
        protocol: which requests it takes.
        url: the part before `/chat/completions` (OpenAI) or `/api/chat` (Ollama).
        model: its name there.
        timeout_s: of one request, until its last byte.
        attempts: requests for one answer; what fails for good ends the evaluation, which can be resumed.
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
        """Digest of what is asked; what stands behind an address may still change."""
        return combine({"protocol": self.protocol, "url": self.url.rstrip("/"), "model": self.model})


@dataclass(frozen=True)
class Reply:
    """An endpoint's answer; `tokens` is None where it does not count them."""

    text: str
    tokens: int | None
    finish: Literal["stop", "length"]


def client_of(endpoint: Endpoint) -> "httpx2.Client":
    """A client for an endpoint's requests; to be closed. The key comes from the environment, and goes nowhere else."""
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
    """One answer.

    Raises:
        EndpointError: it refuses the request, keeps failing, or its answer is empty or not of the protocol.
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
    """The JSON of the response, after as many attempts as it takes."""
    import httpx2

    url, problem = endpoint.url.rstrip("/") + path, ""
    for attempt in range(endpoint.attempts):
        pause = endpoint.first_wait_s * 2**attempt
        try:
            response = client.post(url, json=dict(body))
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise EndpointError(f"{url}: {error}") from error
        except httpx2.TransportError as error:
            problem = f"{type(error).__name__}: {error}"
        else:
            if response.status_code == 200:
                try:
                    return response.json()
                except ValueError as error:
                    raise EndpointError(
                        f"{url} answers with something that is not JSON: {response.text[:200]}"
                    ) from error
            problem = f"HTTP {response.status_code}: {response.text[:300]}"
            if response.status_code not in _RETRIED:
                raise EndpointError(f"{url} refuses the request for model {endpoint.model}: {problem}{_hint(response)}")
            pause = _asked_pause(response, pause)
        if attempt + 1 < endpoint.attempts:
            wait(min(pause, _LONGEST_WAIT_S))
    raise EndpointError(
        f"{url} gave no answer in {endpoint.attempts} attempts ({problem}): start it, or try again later; what was "
        "answered so far is kept"
    )


def _hint(response: Any) -> str:
    if response.status_code in (401, 403):
        return f"; set {KEY} in the environment"
    return "; is the model's name right?" if response.status_code == 404 else ""


def _asked_pause(response: Any, otherwise: float) -> float:
    """Seconds that a Retry-After header asks for."""
    asked = response.headers.get("retry-after", "")
    return float(asked) if asked.replace(".", "", 1).isdigit() else otherwise


def _read(endpoint: Endpoint, found: Any) -> Reply:
    """The reply in a response of the protocol."""
    where = f"{endpoint.url} ({endpoint.model})"
    try:
        if endpoint.protocol == "openai":
            choice = found["choices"][0]
            text, reason = choice["message"].get("content"), choice.get("finish_reason")
            tokens = (found.get("usage") or {}).get("completion_tokens")
        else:
            text, reason = found["message"].get("content"), found.get("done_reason")
            tokens = found.get("eval_count")
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise EndpointError(f"{where} answers with no message in it: {str(found)[:300]}") from error
    if reason not in ("stop", "length"):
        raise EndpointError(f"{where} ended an answer for the reason {reason!r}: expected stop or length")
    if not isinstance(text, str) or (not text and not (reason == "stop" and tokens is not None and tokens <= 1)):
        more = ": all of its budget went elsewhere, raise max_new_tokens" if reason == "length" else ""
        raise EndpointError(f"{where} gave an empty answer of {tokens} tokens (finish {reason}){more}")
    return Reply(text, None if tokens is None else int(tokens), reason)
