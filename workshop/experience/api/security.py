"""API families of one cell: credentials, signatures, rate limits, caching, retries."""

from workshop.experience.api.handlers import api_task

FAMILIES = (
    api_task(
        "bearer_auth",
        (
            "checks the `Authorization: Bearer` header of a request and returns (status, body)",
            "answers 401 without a bearer token, 403 for an unknown one, otherwise 200 with the user",
        ),
        """
        TOKENS = {"<<token>>": "<<user>>"}

        def <<fn>>(headers):
            <<doc>>
            scheme, _, token = headers.get("Authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not token:
                return 401, {"detail": "missing bearer token"}
            if token not in TOKENS:
                return 403, {"detail": "unknown token"}
            return 200, {"user": TOKENS[token]}
        """,
        """
        <<fn>>({"Authorization": "Bearer <<token>>"}) ==>
        <<fn>>({"Authorization": "Bearer nope"})[0] ==>
        <<fn>>({})[0] ==>
        """,
        pick={
            "fn": ["authenticate", "check_auth", "current_user", "require_token", "authorize"],
            "token|user": [
                ("demo-abc", "mira"),
                ("demo-123", "theo"),
                ("demo-key", "lena"),
                ("demo-xyz", "otto"),
                ("demo-777", "gwen"),
            ],
        },
        bugs=[
            ("missing header", 'headers.get("Authorization", "")', 'headers["Authorization"]'),
            ("unpacks two of three", "scheme, _, token =", "scheme, token ="),
            ("status order", "return 403, {", "return 401, {"),
        ],
    ),
    api_task(
        "basic_auth",
        (
            "decodes an `Authorization: Basic` header to (user, password), or None when it is malformed",
            "reads HTTP basic credentials from a header value (None if invalid)",
        ),
        """
        import base64
        import binascii

        def <<fn>>(header):
            <<doc>>
            scheme, _, encoded = header.partition(" ")
            if scheme.lower() != "basic":
                return None
            try:
                decoded = base64.b64decode(encoded, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                return None
            user, separator, word = decoded.partition(":")
            return (user, word) if separator else None
        """,
        """
        header = "Basic " + base64.b64encode(b"<<user>>:<<word>>").decode()
        <<fn>>(header) ==>
        <<fn>>("Basic !!") ==>
        <<fn>>("Bearer x") ==>
        """,
        pick={
            "fn": ["basic_credentials", "parse_basic", "decode_basic", "read_credentials", "basic_auth"],
            "user|word": [("mira", "tea"), ("theo", "a:b"), ("lena", "sun"), ("otto", "map"), ("gwen", "fox")],
        },
        bugs=[
            ("bytes have no text separator", "validate=True).decode()", "validate=True)"),
            ("error not caught", "except (binascii.Error, UnicodeDecodeError):", "except UnicodeDecodeError:"),
            (
                "split of all colons",
                'user, separator, word = decoded.partition(":")',
                'user, separator, word = decoded.split(":")',
            ),
        ],
    ),
    api_task(
        "etag",
        (
            "answers a GET with an ETag, and with 304 and no body when If-None-Match carries the same one",
            "implements conditional GET for a <<thing>> with a SHA-256 ETag",
        ),
        """
        import hashlib
        import json

        def get_<<thing>>(<<thing>>, headers):
            <<doc>>
            body = json.dumps(<<thing>>, sort_keys=True)
            etag = '"' + hashlib.sha256(body.encode()).hexdigest()[:16] + '"'
            if headers.get("If-None-Match") == etag:
                return 304, {"ETag": etag}, ""
            return 200, {"ETag": etag}, body
        """,
        """
        <<thing>> = {"<<label>>": <<n1>>, "<<number>>": <<j>>}
        status, headers, body = get_<<thing>>(<<thing>>, {})
        (status, body) ==>
        get_<<thing>>(<<thing>>, {"If-None-Match": headers["ETag"]})[0] ==>
        get_<<thing>>({**<<thing>>, "<<number>>": 0}, {"If-None-Match": headers["ETag"]})[0] ==>
        """,
        bugs=[
            ("hash of text", "hashlib.sha256(body.encode())", "hashlib.sha256(body)"),
            ("missing import", "import hashlib\n", ""),
            ("wrong header", 'headers.get("If-None-Match")', 'headers.get("If-Match")'),
        ],
    ),
    api_task(
        "rate_limit",
        (
            "allows `limit` requests per `window` seconds and client, and answers 429 with Retry-After otherwise",
            "limits requests per client in a sliding window; the time is passed in as `now`",
        ),
        """
        from collections import defaultdict, deque

        class <<Name>>:
            def __init__(self, limit=<<k>>, window=<<w>>):
                self.limit, self.window = limit, window
                self.calls = defaultdict(deque)

            def check(self, client, now):
                recent = self.calls[client]
                while recent and recent[0] <= now - self.window:
                    recent.popleft()
                if len(recent) >= self.limit:
                    return 429, {"Retry-After": str(int(recent[0] + self.window - now))}
                recent.append(now)
                return 200, {}

        def <<fn>>(times, **options):
            <<doc>>
            limiter = <<Name>>(**options)
            return [limiter.check("client", now)[0] for now in times]
        """,
        """
        <<fn>>([0, 1, 2, 3, <<w>>, <<w>> + 1], limit=2) ==>
        <<Name>>(limit=0 + 1).check("<<thing>>", 5) ==>
        """,
        pick={
            "Name": ["RateLimiter", "Throttle", "Limiter", "Quota", "RequestWindow"],
            "fn": ["simulate", "statuses", "replay", "try_requests", "send_all"],
            "w": ["10", "30", "60", "20", "15"],
        },
        bugs=[
            ("list in place of deque", "defaultdict(deque)", "defaultdict(list)"),
            ("one too many", "len(recent) >= self.limit", "len(recent) > self.limit"),
            ("window never moves", "            recent.popleft()\n", "            break\n"),
        ],
    ),
    api_task(
        "retry_backoff",
        (
            "calls `send()` until the status is below 500, with exponential backoff, at most `attempts` times; returns status and waits",
            "retries a request on 5xx answers, waiting <<d>> * 2**n seconds through an injected `sleep`",
        ),
        """
        def <<fn>>(send, sleep, attempts=4, delay=<<d>>):
            <<doc>>
            for attempt in range(attempts):
                status = send()
                if status < 500:
                    return status
                if attempt < attempts - 1:
                    sleep(delay * 2 ** attempt)
            return status
        """,
        """
        answers, waits = iter([503, 500, <<ok>>]), []
        <<fn>>(lambda: next(answers), waits.append) ==>
        waits ==>
        <<fn>>(lambda: 502, waits.append, attempts=2) ==>
        """,
        pick={
            "fn": ["request_with_retry", "call_api", "send_with_backoff", "retry_request", "fetch"],
            "d": ["0.5", "1", "0.2", "2", "0.1"],
            "ok": ["200", "201", "204", "404", "302"],
        },
        bugs=[
            ("request sent only once", "        status = send()\n        if", "        status = send\n        if"),
            ("linear backoff", "delay * 2 ** attempt", "delay * 2 * attempt"),
            ("condition reversed", "if status < 500:", "if status >= 500:"),
        ],
    ),
    api_task(
        "idempotency",
        (
            "Write a class `<<Thing>>Api` whose `post(body, key)` creates a <<thing>> once per Idempotency-Key: the same key gives the stored answer.",
            "Implement idempotent POST /<<things>> as `<<Thing>>Api.post(body, key=None)`; another body under the same key is a 409.",
        ),
        """
        import itertools

        class <<Thing>>Api:
            def __init__(self):
                self.ids, self.answers = itertools.count(1), {}

            def post(self, body, key=None):
                if key in self.answers:
                    stored, answer = self.answers[key]
                    return answer if stored == body else (409, {"detail": "key used with another body"})
                answer = (201, {"id": next(self.ids), **body})
                if key is not None:
                    self.answers[key] = (body, answer)
                return answer
        """,
        """
        api = <<Thing>>Api()
        api.post({"<<label>>": <<n1>>}, key="k<<i>>") ==>
        api.post({"<<label>>": <<n1>>}, key="k<<i>>") ==>
        api.post({"<<label>>": <<n2>>}, key="k<<i>>")[0] ==>
        api.post({"<<label>>": <<n2>>})[1]["id"] ==>
        """,
        bugs=[
            ("answer not stored", "            self.answers[key] = (body, answer)\n", "            pass\n"),
            ("counter not advanced", "next(self.ids)", "self.ids"),
            ("wrong unpacking", "stored, answer = self.answers[key]", "stored, answer = self.answers"),
        ],
    ),
    api_task(
        "cors",
        (
            "returns the CORS headers of a response for allowed origins, and none for others",
            "answers preflight requests: allowed origins get Access-Control headers for <<methods>>",
        ),
        """
        ALLOWED = {"<<origin>>"}

        def <<fn>>(headers, methods=<<tuple>>):
            <<doc>>
            origin = headers.get("Origin")
            if origin not in ALLOWED:
                return {}
            return {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Allow-Methods": ", ".join(methods),
                "Vary": "Origin",
            }
        """,
        """
        <<fn>>({"Origin": "<<origin>>"}) ==>
        <<fn>>({"Origin": "https://elsewhere.example"}) ==>
        <<fn>>({}) ==>
        """,
        pick={
            "fn": ["cors_headers", "preflight", "allow_origin", "cross_origin", "cors"],
            "origin": [
                "https://app.example.com",
                "https://shop.example.org",
                "http://localhost:3000",
                "https://maps.example.net",
                "https://admin.example.com",
            ],
            "methods|tuple": [
                ("GET and POST", '("GET", "POST")'),
                ("GET, PUT and DELETE", '("GET", "PUT", "DELETE")'),
                ("GET only", '("GET",)'),
                ("POST and PATCH", '("POST", "PATCH")'),
            ],
        },
        bugs=[
            ("key missing", 'headers.get("Origin")', 'headers["Origin"]'),
            ("joins the wrong way", '", ".join(methods)', 'methods.join(", ")'),
            ("everyone allowed", "if origin not in ALLOWED:", "if origin is None:"),
        ],
    ),
    api_task(
        "cookies",
        (
            "reads a session cookie from a Cookie header and builds a Set-Cookie header for a new one",
            "parses the Cookie header and returns the `<<cookie>>` value, or None",
        ),
        """
        from http.cookies import SimpleCookie

        def <<fn>>(header, name="<<cookie>>"):
            <<doc>>
            jar = SimpleCookie(header)
            return jar[name].value if name in jar else None

        def set_cookie(value, name="<<cookie>>", max_age=<<big>>):
            jar = SimpleCookie({name: value})
            jar[name]["max-age"] = max_age
            jar[name]["httponly"] = True
            return jar[name].OutputString()
        """,
        """
        <<fn>>("theme=dark; <<cookie>>=abc<<i>>") ==>
        <<fn>>("theme=dark") ==>
        set_cookie("v<<k>>") ==>
        """,
        pick={
            "fn": ["session_id", "read_cookie", "cookie_value", "get_session", "find_cookie"],
            "cookie": ["sid", "session", "visit", "cart", "login"],
        },
        bugs=[
            ("missing import", "from http.cookies import SimpleCookie\n\n", ""),
            ("key missing", "jar[name].value if name in jar else None", "jar[name].value"),
            ("morsel instead of text", "jar[name].value if name in jar", "jar[name] if name in jar"),
        ],
    ),
    api_task(
        "webhook_signature",
        (
            "verifies the HMAC-SHA256 signature `sha256=...` of a webhook body in constant time",
            "checks a webhook: the signature header must be the hex HMAC of the raw body",
        ),
        """
        import hashlib
        import hmac

        def sign(body, key):
            return "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()

        def <<fn>>(body, header, key):
            <<doc>>
            return hmac.compare_digest(sign(body, key), header or "")
        """,
        """
        body = b'{"event": "<<thing>>.<<event>>", "id": <<i>>}'
        <<fn>>(body, sign(body, b"demo"), b"demo") ==>
        <<fn>>(body + b" ", sign(body, b"demo"), b"demo") ==>
        <<fn>>(body, None, b"demo") ==>
        """,
        pick={
            "fn": ["verify_webhook", "signature_ok", "is_authentic", "check_signature", "valid_hook"],
            "event": ["created", "deleted", "updated", "paid", "shipped"],
        },
        bugs=[
            ("missing digest", "hmac.new(key, body, hashlib.sha256)", "hmac.new(key, body)"),
            ("None compared", 'header or ""', "header"),
            ("bytes added to text", ".hexdigest()", ".digest()"),
        ],
    ),
    api_task(
        "signed_token",
        (
            "issues and verifies a signed token: base64url payload, a dot, and an HMAC; expired or altered tokens give None",
            "makes compact signed tokens with an expiry time `exp` and verifies them at time `now`",
        ),
        """
        import base64
        import hashlib
        import hmac
        import json

        def _signature(payload, key):
            return hmac.new(key, payload.encode(), hashlib.sha256).hexdigest()[:20]

        def issue(claims, key):
            payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode()
            return f"{payload}.{_signature(payload, key)}"

        def <<fn>>(token, key, now):
            <<doc>>
            payload, _, signature = token.rpartition(".")
            if not hmac.compare_digest(signature, _signature(payload, key)):
                return None
            claims = json.loads(base64.urlsafe_b64decode(payload))
            return claims if claims["exp"] > now else None
        """,
        """
        token = issue({"sub": "<<user>>", "exp": <<big>>}, b"demo")
        <<fn>>(token, b"demo", now=10) ==>
        <<fn>>(token, b"demo", now=1000) ==>
        <<fn>>("x" + token, b"demo", now=10) ==>
        """,
        pick={
            "fn": ["verify", "read_token", "check_token", "decode_token", "open_token"],
            "user": ["mira", "theo", "lena", "otto", "gwen"],
        },
        bugs=[
            ("bytes not decoded", "json.dumps(claims).encode()).decode()", "json.dumps(claims).encode())"),
            ("text as message", "hmac.new(key, payload.encode(),", "hmac.new(key, payload,"),
            ("expiry ignored", 'claims if claims["exp"] > now else None', "claims"),
        ],
    ),
    api_task(
        "cache_control",
        (
            "parses a Cache-Control header into a dictionary: directives without value are True, numbers become int",
            "reads Cache-Control directives such as `<<cc>>`",
        ),
        """
        def <<fn>>(header):
            <<doc>>
            directives = {}
            for part in header.split(","):
                name, has_value, value = part.strip().partition("=")
                if name:
                    directives[name.lower()] = int(value) if has_value else True
            return directives
        """,
        """
        <<fn>>("<<cc>>") ==>
        <<fn>>("max-age=<<big>>, private") ==>
        <<fn>>("") ==>
        """,
        pick={
            "fn": ["parse_cache_control", "cache_directives", "cache_policy", "read_cache_header", "caching"],
            "cc": [
                "public, max-age=600",
                "no-store",
                "private, max-age=0, must-revalidate",
                "max-age=86400, immutable",
                "s-maxage=30, stale-while-revalidate=60",
            ],
        },
        bugs=[
            ("empty text as number", "int(value) if has_value else True", "int(value)"),
            ("space kept", "part.strip().partition", "part.partition"),
            ("unpacks too few", 'part.strip().partition("=")', 'part.strip().split("=")'),
        ],
    ),
    api_task(
        "http_dates",
        (
            "tells whether a resource changed since the If-Modified-Since header (HTTP date format)",
            "answers 304 when the last change is not newer than If-Modified-Since, else 200 with Last-Modified",
        ),
        """
        from datetime import datetime, timezone
        from email.utils import format_datetime, parsedate_to_datetime

        def <<fn>>(changed, headers):
            <<doc>>
            since = headers.get("If-Modified-Since")
            if since and changed <= parsedate_to_datetime(since):
                return 304, {}
            return 200, {"Last-Modified": format_datetime(changed, usegmt=True)}
        """,
        """
        changed = datetime(<<year>>, <<month>>, <<day>>, 12, 0, tzinfo=timezone.utc)
        status, headers = <<fn>>(changed, {})
        (status, headers) ==>
        <<fn>>(changed, {"If-Modified-Since": headers["Last-Modified"]}) ==>
        """,
        pick={"fn": ["conditional_get", "modified_since", "check_modified", "last_modified", "freshness"]},
        bugs=[
            ("date against text", "changed <= parsedate_to_datetime(since)", "changed <= since"),
            ("key missing", 'headers.get("If-Modified-Since")', 'headers["If-Modified-Since"]'),
            (
                "local time",
                "format_datetime(changed, usegmt=True)",
                "format_datetime(changed.replace(tzinfo=None), usegmt=True)",
            ),
        ],
    ),
)
