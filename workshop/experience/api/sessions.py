"""API families of several cells: local servers, clients, log-ins, versions."""

from workshop.experience.api.handlers import api_session
from workshop.experience.ml.metrics import cell

FAMILIES = (
    api_session(
        "http_server",
        (
            cell(
                (
                    "Start a small HTTP server on the loopback interface that serves <<things>> as JSON.",
                    "Run a local JSON server for <<things>> in a thread: GET /<<things>> and GET /<<things>>/<<<label>>>.",
                ),
                """
                import json
                import threading
                from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

                <<THINGS>> = {row["<<label>>"]: row for row in <<rows3>>}

                class Handler(BaseHTTPRequestHandler):
                    def do_GET(self):
                        parts = self.path.strip("/").split("/")
                        if parts == ["<<things>>"]:
                            self.reply(200, list(<<THINGS>>))
                        elif parts[0] == "<<things>>" and parts[1] in <<THINGS>>:
                            self.reply(200, <<THINGS>>[parts[1]])
                        else:
                            self.reply(404, {"detail": "not found"})

                    def reply(self, status, payload):
                        body = json.dumps(payload).encode()
                        self.send_response(status)
                        self.send_header("Content-Type", "application/json")
                        self.send_header("Content-Length", str(len(body)))
                        self.end_headers()
                        self.wfile.write(body)

                    def log_message(self, *args):
                        pass

                server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
                threading.Thread(target=server.serve_forever, daemon=True).start()
                """,
            ),
            cell(
                (
                    "Fetch the list of <<things>> from the server with urllib.",
                    "GET /<<things>> with the standard library and show status and body.",
                ),
                """
                from urllib.request import urlopen

                base = f"http://127.0.0.1:{server.server_port}"
                with urlopen(f"{base}/<<things>>", timeout=5) as response:
                    print(response.status, json.load(response))
                """,
            ),
            cell(
                (
                    "Ask for a <<thing>> that does not exist and show status and detail of the error, then stop the server.",
                    "Request an unknown <<thing>>, handle the HTTPError, and shut the server down.",
                ),
                """
                from urllib.error import HTTPError

                try:
                    urlopen(f"{base}/<<things>>/nobody", timeout=5)
                except HTTPError as error:
                    status, detail = error.code, json.load(error)["detail"]
                server.shutdown()
                print(status, detail)
                """,
                "(status, detail) ==>",
            ),
        ),
        pick={"THINGS": ["DATA", "STORE", "ROWS", "TABLE", "RECORDS"]},
        bugs=[
            ("error not caught", "except HTTPError as error:", "except TimeoutError as error:"),
            ("attribute of the error", "error.code", "error.status_code"),
            ("missing import", "from urllib.error import HTTPError\n\n", ""),
        ],
    ),
    api_session(
        "post_server",
        (
            cell(
                (
                    "Serve POST /<<things>> on loopback: store the JSON body and answer 201, or 422 without <<label>>.",
                    "Start a local server that creates <<things>> by POST and validates <<label>>.",
                ),
                """
                import json
                import threading
                from http.server import BaseHTTPRequestHandler, HTTPServer

                <<things>> = []

                class <<Thing>>Handler(BaseHTTPRequestHandler):
                    def do_POST(self):
                        length = int(self.headers["Content-Length"])
                        body = json.loads(self.rfile.read(length))
                        valid = self.path == "/<<things>>" and bool(body.get("<<label>>"))
                        if valid:
                            <<things>>.append(body)
                        answer = json.dumps({"count": len(<<things>>)} if valid else {"detail": "<<label>> required"}).encode()
                        self.send_response(201 if valid else 422)
                        self.send_header("Content-Length", str(len(answer)))
                        self.end_headers()
                        self.wfile.write(answer)

                    def log_message(self, *args):
                        pass

                service = HTTPServer(("127.0.0.1", 0), <<Thing>>Handler)
                threading.Thread(target=service.serve_forever, daemon=True).start()
                """,
            ),
            cell(
                (
                    "Write `post(body)` that sends JSON to the service and returns (status, answer), also for errors.",
                    "Make a helper that POSTs a <<thing>> and gives back status and JSON whether it worked or not.",
                ),
                """
                from urllib.error import HTTPError
                from urllib.request import Request, urlopen

                def post(body):
                    url = f"http://127.0.0.1:{service.server_port}/<<things>>"
                    request = Request(url, data=json.dumps(body).encode(), method="POST")
                    try:
                        with urlopen(request, timeout=5) as response:
                            return response.status, json.load(response)
                    except HTTPError as error:
                        return error.code, json.load(error)
                """,
                """
                post({"<<label>>": <<n1>>, "<<number>>": <<i>>}) ==>
                post({"<<number>>": <<j>>}) ==>
                """,
            ),
            cell(
                (
                    "What did the service store? Stop it afterwards.",
                    "Shut the service down and list the stored <<things>>.",
                ),
                'service.shutdown()\nprint(len(<<things>>), <<things>>[0]["<<label>>"])',
            ),
        ),
        bugs=[
            ("body not encoded", "data=json.dumps(body).encode()", "data=json.dumps(body)"),
            (
                "scheme missing",
                'f"http://127.0.0.1:{service.server_port}/<<things>>"',
                'f"127.0.0.1:{service.server_port}/<<things>>"',
            ),
            ("missing import", "from urllib.request import Request, urlopen", "from urllib.request import urlopen"),
        ],
        bug_cell=1,
    ),
    api_session(
        "pagination_client",
        (
            cell(
                (
                    "Fake a paged endpoint: `get(path)` returns <<things>> two at a time with a `next` path.",
                    "Make an in-process endpoint `get(path)` with pages of two <<things>> and a `next` link.",
                ),
                """
                from urllib.parse import parse_qs, urlsplit

                <<THINGS>> = <<labels>>

                def get(path):
                    query = parse_qs(urlsplit(path).query)
                    offset = int(query.get("offset", ["0"])[0])
                    more = offset + 2 < len(<<THINGS>>)
                    return {"items": <<THINGS>>[offset:offset + 2], "next": f"/<<things>>?offset={offset + 2}" if more else None}

                get("/<<things>>")
                """,
            ),
            cell(
                (
                    "Write a generator `<<fn>>(path)` that follows `next` and yields every item.",
                    "Iterate over all pages with a generator `<<fn>>` that stops when next is null.",
                ),
                """
                def <<fn>>(path):
                    while path:
                        page = get(path)
                        yield from page["items"]
                        path = page["next"]
                """,
                """
                list(<<fn>>("/<<things>>")) ==>
                next(<<fn>>("/<<things>>?offset=4")) ==>
                """,
            ),
            cell(
                (
                    "How many requests does it take to find the first <<thing>> after <<n3>>? Count them.",
                    "Count the calls of `get` needed to reach <<n3>>.",
                ),
                """
                calls, original = [], get

                def get(path):
                    calls.append(path)
                    return original(path)

                position = next(index for index, item in enumerate(<<fn>>("/<<things>>")) if item == <<n3>>)
                print(position, len(calls))
                """,
                "len(calls) == position // 2 + 1 ==>",
            ),
        ),
        pick={
            "fn": ["all_items", "iterate", "every_item", "walk_pages", "follow"],
            "THINGS": ["DATA", "STORE", "ROWS", "ITEMS", "RECORDS"],
        },
        bugs=[
            ("yields pages", 'yield from page["items"]', 'yield page["items"]'),
            ("stops after one page", '        path = page["next"]', "        path = None"),
            ("key name", 'page["next"]', 'page["next_page"]'),
        ],
        bug_cell=1,
    ),
    api_session(
        "login_session",
        (
            cell(
                (
                    "Build a login service in memory: POST /login gives a token for a known user, GET /me needs it.",
                    "Write `handle(method, path, headers, body)` with /login (token) and /me (bearer token).",
                ),
                """
                import hashlib
                import hmac

                USERS = {"<<user>>": hashlib.sha256(b"<<word>>").hexdigest()}
                SESSIONS = {}

                def handle(method, path, headers=None, body=None):
                    headers, body = headers or {}, body or {}
                    if (method, path) == ("POST", "/login"):
                        given = hashlib.sha256(body.get("word", "").encode()).hexdigest()
                        if not hmac.compare_digest(USERS.get(body.get("user"), ""), given):
                            return 401, {"detail": "wrong user or word"}
                        token = f"demo-{len(SESSIONS) + 1}"
                        SESSIONS[token] = body["user"]
                        return 200, {"token": token}
                    if (method, path) == ("GET", "/me"):
                        user = SESSIONS.get(headers.get("Authorization", "").removeprefix("Bearer "))
                        return (200, {"user": user}) if user else (401, {"detail": "log in first"})
                    return 404, {"detail": "not found"}
                """,
                """
                handle("POST", "/login", body={"user": "<<user>>", "word": "nope"})[0] ==>
                """,
            ),
            cell(
                (
                    "Log in as <<user>> and call /me with the token.",
                    "Use the service: log in, then GET /me with the bearer token.",
                ),
                """
                status, answer = handle("POST", "/login", body={"user": "<<user>>", "word": "<<word>>"})
                headers = {"Authorization": f"Bearer {answer['token']}"}
                profile = handle("GET", "/me", headers=headers)
                print(status, profile)
                """,
                "profile ==>",
            ),
            cell(
                (
                    "Check that /me refuses a missing and a wrong token and that unknown paths are 404.",
                    "Try /me without a token, with a wrong one, and an unknown path; show the status codes.",
                ),
                """
                codes = [
                    handle("GET", "/me")[0],
                    handle("GET", "/me", headers={"Authorization": "Bearer wrong"})[0],
                    handle("GET", "/<<things>>")[0],
                ]
                print(codes)
                """,
                "codes ==>",
            ),
        ),
        pick={
            "user|word": [
                ("mira", "tea"),
                ("theo", "rain"),
                ("lena", "sun"),
                ("otto", "map"),
                ("gwen", "fox"),
                ("paul", "oak"),
            ]
        },
        bugs=[
            (
                "body not named",
                'body={"user": "<<user>>", "word": "<<word>>"}',
                '{"user": "<<user>>", "word": "<<word>>"}',
            ),
            ("scheme forgotten", "f\"Bearer {answer['token']}\"", "answer"),
            ("key name", "answer['token']", "answer['access_token']"),
        ],
        bug_cell=1,
    ),
    api_session(
        "typed_model",
        (
            cell(
                (
                    "Define a dataclass `<<Thing>>In` for the request body of POST /<<things>> with a `parse` that collects errors.",
                    "Model the body of a new <<thing>> as a dataclass with a classmethod `parse(data)` returning (model, errors).",
                ),
                """
                from dataclasses import asdict, dataclass, fields

                @dataclass
                class <<Thing>>In:
                    <<label>>: str
                    <<number>>: int
                    <<group>>: str = <<g1>>

                    @classmethod
                    def parse(cls, data):
                        errors = [f"{field.name}: expected {field.type.__name__}" for field in fields(cls)
                                  if field.name in data and not isinstance(data[field.name], field.type)]
                        errors += [f"{name}: missing" for name in ("<<label>>", "<<number>>") if name not in data]
                        unknown = sorted(set(data) - {field.name for field in fields(cls)})
                        errors += [f"{name}: unknown" for name in unknown]
                        return (None if errors else cls(**data)), errors
                """,
                """
                <<Thing>>In.parse({"<<label>>": <<n1>>, "<<number>>": "many", "color": 1})[1] ==>
                """,
            ),
            cell(
                (
                    "Write the handler: 201 with the stored <<thing>> and its id, or 422 with the errors.",
                    "Use the model in `post_<<thing>>(data)`; answer 201 or 422.",
                ),
                """
                stored = []

                def post_<<thing>>(data):
                    model, errors = <<Thing>>In.parse(data)
                    if errors:
                        return 422, {"errors": errors}
                    stored.append(asdict(model) | {"id": len(stored) + 1})
                    return 201, stored[-1]
                """,
                """
                post_<<thing>>({"<<label>>": <<n2>>, "<<number>>": <<i>>}) ==>
                post_<<thing>>({"<<label>>": <<n2>>}) ==>
                """,
            ),
        ),
        bugs=[
            ("model is no mapping", "asdict(model) | {", "model | {"),
            ("not unpacked", "model, errors = <<Thing>>In.parse(data)", "model = <<Thing>>In.parse(data); errors = []"),
            ("name not defined", "stored.append(", "store.append("),
        ],
    ),
    api_session(
        "versioned_api",
        (
            cell(
                (
                    "Serve <<things>> in two API versions: v1 gives a list of <<label>>s, v2 objects with <<number>>.",
                    "Write handlers for /v1/<<things>> and /v2/<<things>> over the same data.",
                ),
                """
                ROWS = <<rows3>>

                def v1_<<things>>():
                    return [row["<<label>>"] for row in ROWS]

                def v2_<<things>>():
                    return {"data": [{"<<label>>": row["<<label>>"], "<<number>>": row["<<number>>"]} for row in ROWS]}

                ROUTES = {("v1", "<<things>>"): v1_<<things>>, ("v2", "<<things>>"): v2_<<things>>}
                """,
            ),
            cell(
                (
                    "Dispatch by path or by the header `Api-Version`, with v<<d>> as the default.",
                    "Write `call(path, headers)`: version from /vN/ or the Api-Version header, default v<<d>>; unknown is 404.",
                ),
                """
                def call(path, headers=None):
                    parts = path.strip("/").split("/")
                    version = parts.pop(0) if parts[0] in ("v1", "v2") else (headers or {}).get("Api-Version", "v<<d>>")
                    handler = ROUTES.get((version, "/".join(parts)))
                    return (200, handler()) if handler else (404, {"detail": f"no {path} in {version}"})
                """,
                """
                call("/v1/<<things>>") ==>
                call("/<<things>>", {"Api-Version": "v2"})[0] ==>
                call("/<<things>>", {"Api-Version": "v9"}) ==>
                call("/<<things>>")[0] ==>
                """,
            ),
        ),
        pick={"d": ["1", "2"]},
        bugs=[
            ("None has no get", "(headers or {}).get(", "headers.get("),
            ("key error", 'ROUTES.get((version, "/".join(parts)))', 'ROUTES[(version, "/".join(parts))]'),
            ("list as key", '(version, "/".join(parts))', "(version, parts)"),
        ],
    ),
    api_session(
        "transport_retries",
        (
            cell(
                (
                    "Fake a flaky transport that answers 503 with Retry-After <<k>> twice and then 200 with a <<thing>>.",
                    "Write `transport(request)` that fails <<f>> times with 503 before it returns a <<thing>>.",
                ),
                """
                class FlakyTransport:
                    def __init__(self, failures=<<f>>):
                        self.failures, self.calls = failures, 0

                    def __call__(self, method, path):
                        self.calls += 1
                        if self.calls <= self.failures:
                            return 503, {"Retry-After": "<<k>>"}, None
                        return 200, {}, {"<<label>>": <<n1>>, "path": path}

                FlakyTransport(0)("GET", "/<<things>>/1")
                """,
            ),
            cell(
                (
                    "Write `<<fn>>(transport, path, sleep)` that honours Retry-After and gives up after 4 attempts with an exception.",
                    "Add a client function `<<fn>>` with retries that waits as Retry-After says.",
                ),
                """
                class Unavailable(Exception):
                    pass

                def <<fn>>(transport, path, sleep):
                    for _ in range(4):
                        status, headers, body = transport("GET", path)
                        if status != 503:
                            return status, body
                        sleep(float(headers.get("Retry-After", 1)))
                    raise Unavailable(path)
                """,
                """
                waits = []
                <<fn>>(FlakyTransport(), "/<<things>>/<<i>>", waits.append) ==>
                waits ==>
                try:
                    <<fn>>(FlakyTransport(9), "/<<things>>", waits.append)
                    outcome = "answered"
                except Unavailable as error:
                    outcome = f"gave up on {error}"
                outcome ==>
                """,
            ),
        ),
        pick={"fn": ["fetch", "get_patiently", "request", "load", "get_with_retry"], "f": ["2", "1", "3"]},
        bugs=[
            ("text to sleep", 'float(headers.get("Retry-After", 1))', 'headers.get("Retry-After", 1)'),
            ("unpacks too few", "status, headers, body = transport", "status, body = transport"),
            ("no exception", "    raise Unavailable(path)", "    return None"),
        ],
    ),
)
