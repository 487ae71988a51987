"""Delivery of a document to a webhook: in bounded time, without saying the address, which is a secret."""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from capibara_assets.processes.supervise import doubled

TIMEOUT_S = 5.0
ATTEMPTS = 3
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 5.0
_PASSING = {408, 425, 429, 500, 502, 503, 504}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: the document is for the address that was configured."""

    def redirect_request(self, *_: Any) -> None:
        return None


def post(url: str, document: Mapping[str, Any], key: str, wait: Callable[[float], None] = time.sleep) -> str | None:
    """Send a document as JSON; None on success, else the problem, without the address.

    Args:
        key: in the header `Idempotency-Key`: a receiver that gets it twice may drop one.
    """
    if not url.startswith(("https://", "http://")):
        return "its address is no http:// or https:// one"
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    problem = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            wait(doubled(_FIRST_WAIT_S, attempt - 1, _LONGEST_WAIT_S))
        try:
            request = urllib.request.Request(url, json.dumps(document).encode(), headers, method="POST")
            with urllib.request.build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S):
                return None
        except urllib.error.HTTPError as error:
            problem = f"it answers with HTTP {error.code}"
            error.close()
            if error.code not in _PASSING:
                return problem
        except urllib.error.URLError as error:
            problem = f"it cannot be reached ({type(error.reason).__name__})"
        except (OSError, http.client.HTTPException, ValueError) as error:  # their texts may hold the address
            problem = f"it cannot be reached ({type(error).__name__})"
    return f"{problem}, {ATTEMPTS} times"
