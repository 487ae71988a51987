"""API families of one cell: resources, routers, dispatchers, clients, streams."""

from workshop.experience.api.handlers import api_task

FAMILIES = (
    api_task(
        "crud_resource",
        (
            "Write an in-memory REST resource `<<Thing>>Resource` for <<things>>: handle(method, id, body) with 200, 201, 204, 404 and 405.",
            "Implement CRUD for <<things>>: `<<Thing>>Resource.handle(method, id=None, body=None)` returns (status, body).",
        ),
        """
        class <<Thing>>Resource:
            def __init__(self):
                self.rows, self.next_id = {}, 1

            def handle(self, method, id=None, body=None):
                if method == "POST":
                    self.rows[self.next_id] = {"id": self.next_id, **body}
                    self.next_id += 1
                    return 201, self.rows[self.next_id - 1]
                if method == "GET" and id is None:
                    return 200, list(self.rows.values())
                if id not in self.rows:
                    return 404, {"detail": "<<thing>> not found"}
                if method == "GET":
                    return 200, self.rows[id]
                if method == "DELETE":
                    del self.rows[id]
                    return 204, None
                return 405, {"detail": f"{method} not allowed"}
        """,
        """
        api = <<Thing>>Resource()
        api.handle("POST", body={"<<label>>": <<n1>>, "<<number>>": <<j>>}) ==>
        api.handle("GET", 1)[0] ==>
        api.handle("PATCH", 1)[0] ==>
        api.handle("DELETE", 1) ==>
        api.handle("GET", 1) ==>
        """,
        bugs=[
            (
                "id used twice",
                "            self.next_id += 1\n            return 201, self.rows[self.next_id - 1]",
                "            return 201, self.rows[self.next_id - 1]",
            ),
            (
                "key error",
                '        if id not in self.rows:\n            return 404, {"detail": "<<thing>> not found"}\n',
                "",
            ),
            ("no self", "def handle(self, method", "def handle(method"),
        ],
    ),
    api_task(
        "router_decorator",
        (
            "Write a tiny router `<<Name>>` whose decorator `route(method, path)` registers handlers and whose `dispatch` answers 404 and 405.",
            'Implement `<<Name>>` with @route("GET", "/<<things>>") and dispatch(method, path): unknown path 404, wrong method 405.',
        ),
        """
        class <<Name>>:
            def __init__(self):
                self.routes = {}

            def route(self, method, path):
                def register(handler):
                    self.routes.setdefault(path, {})[method] = handler
                    return handler
                return register

            def dispatch(self, method, path):
                if path not in self.routes:
                    return 404, {"detail": "not found"}
                if method not in self.routes[path]:
                    return 405, {"allow": sorted(self.routes[path])}
                return 200, self.routes[path][method]()
        """,
        """
        app = <<Name>>()

        @app.route("GET", "/<<things>>")
        def list_<<things>>():
            return <<labels3>>

        app.dispatch("GET", "/<<things>>") ==>
        app.dispatch("PUT", "/<<things>>") ==>
        app.dispatch("GET", "/nothing")[0] ==>
        """,
        pick={"Name": ["Router", "App", "MiniApp", "Endpoints", "Dispatcher"]},
        bugs=[
            ("decorator not returned", "        return register\n", ""),
            ("get does not store", "self.routes.setdefault(path, {})[method]", "self.routes.get(path, {})[method]"),
            ("handler not called", "self.routes[path][method]()", "self.routes[path][method]"),
        ],
    ),
    api_task(
        "middleware",
        (
            "wraps a handler with middleware in the given order, so that the first one is outermost",
            "builds a request pipeline: each middleware gets the request and the next handler",
        ),
        """
        def <<fn>>(handler, middleware):
            <<doc>>
            for layer in reversed(middleware):
                handler = (lambda inner, layer: lambda request: layer(request, inner))(handler, layer)
            return handler

        def add_<<what>>(request, following):
            response = following(request)
            return {**response, "headers": {**response.get("headers", {}), "X-<<What>>": "<<v>>"}}

        def require_user(request, following):
            return following(request) if request.get("user") else {"status": 401}
        """,
        """
        app = <<fn>>(lambda request: {"status": 200, "body": request["user"]}, [add_<<what>>, require_user])
        app({"user": "<<user>>"}) ==>
        app({}) ==>
        """,
        pick={
            "fn": ["build_app", "with_middleware", "pipeline", "stack", "compose_layers"],
            "what|What|v": [
                ("version", "Version", "2"),
                ("region", "Region", "north"),
                ("trace", "Trace", "t1"),
                ("cache", "Cache", "miss"),
                ("server", "Server", "mini"),
            ],
            "user": ["mira", "theo", "lena", "otto", "gwen"],
        },
        bugs=[
            (
                "argument order",
                "(lambda inner, layer: lambda request: layer(request, inner))(handler, layer)",
                "(lambda inner, layer: lambda request: layer(inner, request))(handler, layer)",
            ),
            ("order reversed", "for layer in reversed(middleware):", "for layer in middleware[::-1][:-1]:"),
            ("key missing", 'response.get("headers", {})', 'response["headers"]'),
        ],
    ),
    api_task(
        "json_rpc",
        (
            "dispatches a JSON-RPC 2.0 request to a table of methods, with errors -32601 (unknown method), -32602 (bad parameters) and -32700 (bad JSON)",
            "answers a JSON-RPC 2.0 call as a dictionary, errors included",
        ),
        """
        import json

        METHODS = {"<<m1>>": <<f1>>, "<<m2>>": <<f2>>}

        def <<fn>>(raw):
            <<doc>>
            try:
                request = json.loads(raw)
            except json.JSONDecodeError:
                return {"jsonrpc": "2.0", "id": None, "error": {"code": -32700}}
            answer = {"jsonrpc": "2.0", "id": request.get("id")}
            if request["method"] not in METHODS:
                return answer | {"error": {"code": -32601}}
            try:
                return answer | {"result": METHODS[request["method"]](*request.get("params", []))}
            except TypeError as error:
                return answer | {"error": {"code": -32602}}
        """,
        """
        <<fn>>('{"id": <<k>>, "method": "<<m1>>", "params": [<<i>>, <<j>>]}') ==>
        <<fn>>('{"id": 2, "method": "<<m1>>", "params": [1]}') ==>
        <<fn>>('{"id": 3, "method": "none"}')["error"] ==>
        <<fn>>("{")["error"] ==>
        """,
        pick={
            "fn": ["handle_rpc", "invoke", "dispatch_rpc", "answer", "call_method"],
            "m1|f1|m2|f2": [
                ("add", "lambda a, b: a + b", "upper", "str.upper"),
                ("multiply", "lambda a, b: a * b", "length", "len"),
                ("subtract", "lambda a, b: a - b", "negate", "lambda a: -a"),
                ("power", "lambda a, b: a ** b", "double", "lambda a: 2 * a"),
                ("smaller", "lambda a, b: min(a, b)", "sorted", "sorted"),
            ],
        },
        bugs=[
            ("wrong exception", "except json.JSONDecodeError:", "except TypeError:"),
            ("key error", 'if request["method"] not in METHODS:', 'if METHODS[request["method"]] is None:'),
            ("arguments not spread", '(*request.get("params", []))', '(request.get("params", []))'),
        ],
    ),
    api_task(
        "field_selection",
        (
            "keeps only the requested fields of a <<thing>>, given as a comma-separated list with dots for nested ones",
            "implements `?fields=a,b.c` for JSON answers",
        ),
        """
        def <<fn>>(document, fields):
            <<doc>>
            selected = {}
            for path in fields.split(","):
                key, _, rest = path.strip().partition(".")
                if key not in document:
                    continue
                if rest:
                    selected.setdefault(key, {}).update(<<fn>>(document[key], rest))
                else:
                    selected[key] = document[key]
            return selected
        """,
        """
        <<thing>> = {"<<label>>": <<n1>>, "<<number>>": <<i>>, "<<group>>": {"name": <<g1>>, "size": <<k>>}}
        <<fn>>(<<thing>>, "<<label>>, <<group>>.size") ==>
        <<fn>>(<<thing>>, "nothing") ==>
        """,
        pick={"fn": ["select_fields", "project", "pick_fields", "sparse", "only"]},
        bugs=[
            ("key error", "        if key not in document:\n            continue\n", ""),
            ("get does not store", "selected.setdefault(key, {}).update(", "selected.get(key, {}).update("),
            ("unpacks too few", 'path.strip().partition(".")', 'path.strip().split(".")'),
        ],
    ),
    api_task(
        "server_sent_events",
        (
            "parses a text/event-stream into events with name and joined data",
            "reads server-sent events: lines `event:` and `data:`, a blank line ends an event",
        ),
        """
        def <<fn>>(stream):
            <<doc>>
            events, name, data = [], "message", []
            for line in stream.split("\\n"):
                if line == "":
                    if data:
                        events.append((name, "\\n".join(data)))
                    name, data = "message", []
                elif line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("data:"):
                    data.append(line[5:].strip())
            return events
        """,
        """
        <<fn>>("event: <<thing>>\\ndata: <<i>>\\ndata: <<j>>\\n\\ndata: plain\\n\\n") ==>
        <<fn>>(": comment\\n\\n") ==>
        """,
        pick={"fn": ["parse_events", "read_stream", "sse_events", "event_stream", "decode_events"]},
        bugs=[
            (
                "events run together",
                '            name, data = "message", []\n        elif',
                '            name = "message"\n        elif',
            ),
            (
                "empty events",
                "            if data:\n                events",
                "            if name:\n                events",
            ),
            ("adds letters", "data.append(line[5:].strip())", "data += line[5:].strip()"),
        ],
    ),
    api_task(
        "job_status",
        (
            "Write a job API `<<Thing>>Jobs`: POST answers 202 with a Location, GET answers 200 with the state until `finish` sets the result (then 303).",
            "Implement asynchronous jobs for <<things>>: submit() -> 202 and Location, status(id) -> 200, 303 when done, 404 when unknown.",
        ),
        """
        class <<Thing>>Jobs:
            def __init__(self):
                self.jobs = {}

            def submit(self, body):
                job = f"job-{len(self.jobs) + 1}"
                self.jobs[job] = {"state": "running", "input": body}
                return 202, {"Location": f"/<<things>>/jobs/{job}"}

            def finish(self, job, result):
                self.jobs[job] |= {"state": "done", "result": result}

            def status(self, job):
                if job not in self.jobs:
                    return 404, {}
                if self.jobs[job]["state"] == "done":
                    return 303, {"Location": f"/<<things>>/{self.jobs[job]['result']}"}
                return 200, {"state": self.jobs[job]["state"]}
        """,
        """
        api = <<Thing>>Jobs()
        api.submit({"<<label>>": <<n1>>}) ==>
        api.status("job-1") ==>
        api.finish("job-1", <<j>>)
        api.status("job-1") ==>
        api.status("job-7") ==>
        """,
        bugs=[
            ("key error", "        if job not in self.jobs:\n            return 404, {}\n", ""),
            ("state replaced", "self.jobs[job] |= {", "self.jobs = {"),
            ("format of a nested quote", "{self.jobs[job]['result']}", "{self.jobs[job].result}"),
        ],
    ),
    api_task(
        "bulk_endpoint",
        (
            "handles a bulk POST of <<things>>: each item gets its own status, the whole answer is 207, or 201 when all succeed",
            "creates several <<things>> at once and reports a status per item",
        ),
        """
        def bulk_create_<<things>>(items, known):
            <<doc>>
            results = []
            for item in items:
                if "<<label>>" not in item:
                    results.append({"status": 422, "detail": "<<label>> missing"})
                elif item["<<label>>"] in known:
                    results.append({"status": 409, "detail": "exists"})
                else:
                    known.add(item["<<label>>"])
                    results.append({"status": 201, "<<label>>": item["<<label>>"]})
            status = 201 if all(result["status"] == 201 for result in results) else 207
            return status, results
        """,
        """
        known = {<<n1>>}
        bulk_create_<<things>>([{"<<label>>": <<n2>>}, {"<<label>>": <<n1>>}, {}], known) ==>
        bulk_create_<<things>>([{"<<label>>": <<n3>>}], known)[0] ==>
        """,
        bugs=[
            ("set method", 'known.add(item["<<label>>"])', 'known.append(item["<<label>>"])'),
            ("key error", 'if "<<label>>" not in item:', 'if item["<<label>>"] is None:'),
            ("any for all", "if all(result", "if any(result"),
        ],
    ),
    api_task(
        "request_objects",
        (
            "builds an urllib Request for creating a <<thing>>: JSON body, content type, bearer token, method <<method>>",
            "prepares the HTTP request that sends a <<thing>> as JSON with <<method>>",
        ),
        """
        import json
        from urllib.request import Request

        def <<fn>>(<<thing>>, token, base="<<base>>"):
            <<doc>>
            return Request(
                f"{base}/<<things>>",
                data=json.dumps(<<thing>>).encode(),
                headers={"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
                method="<<method>>",
            )
        """,
        """
        request = <<fn>>({"<<label>>": <<n1>>}, "demo")
        (request.get_method(), request.full_url) ==>
        request.get_header("Content-type") ==>
        json.loads(request.data) ==>
        """,
        pick={
            "fn": ["new_request", "build_request", "prepare_call", "make_request", "creation_request"],
            "method": ["POST", "PUT", "PATCH"],
            "base": [
                "https://api.example.com",
                "http://localhost:8080",
                "https://example.org/v3",
                "https://data.example.net",
                "https://example.com/api",
            ],
        },
        bugs=[
            ("dictionary as body", "data=json.dumps(<<thing>>).encode(),", "body=json.dumps(<<thing>>),"),
            ("body is text", "json.dumps(<<thing>>).encode()", "<<thing>>"),
            ("wrong import", "from urllib.request import Request", "from urllib import Request"),
        ],
    ),
    api_task(
        "async_gather",
        (
            "fetches several <<thing>> ids concurrently with at most `limit` requests at a time and keeps the order",
            "awaits `get(id)` for all ids through a semaphore and returns the <<number>>s in order",
        ),
        """
        import asyncio

        async def <<fn>>(ids, get, limit=<<k>>):
            <<doc>>
            gate = asyncio.Semaphore(limit)

            async def fetch(id):
                async with gate:
                    return (await get(id))["<<number>>"]

            return await asyncio.gather(*(fetch(id) for id in ids))
        """,
        """
        async def get_<<thing>>(id):
            await asyncio.sleep(0)
            return {"id": id, "<<number>>": id * <<i>>}

        await <<fn>>([3, 1, 2], get_<<thing>>) ==>
        await <<fn>>([], get_<<thing>>) ==>
        """,
        pick={"fn": ["fetch_all", "get_many", "load_all", "collect", "gather_all"]},
        bugs=[
            ("not awaited", '(await get(id))["<<number>>"]', 'get(id)["<<number>>"]'),
            ("missing await", "return await asyncio.gather", "return asyncio.gather"),
            ("with for async with", "async with gate:", "with gate:"),
        ],
    ),
    api_task(
        "openapi_paths",
        (
            "describes the routes of the <<things>> API as the `paths` of an OpenAPI document",
            "turns (method, path, summary) triples into OpenAPI paths with path parameters",
        ),
        """
        import re

        def <<fn>>(routes):
            <<doc>>
            paths = {}
            for method, path, summary in routes:
                operation = {"summary": summary, "responses": {"200": {"description": "OK"}}}
                names = re.findall(r"\\{(\\w+)\\}", path)
                if names:
                    operation["parameters"] = [{"name": name, "in": "path", "required": True} for name in names]
                paths.setdefault(path, {})[method.lower()] = operation
            return paths
        """,
        """
        paths = <<fn>>([("GET", "/<<things>>", "list <<things>>"), ("GET", "/<<things>>/{<<label>>}", "one <<thing>>"), ("DELETE", "/<<things>>/{<<label>>}", "remove")])
        {path: sorted(operations) for path, operations in paths.items()} ==>
        paths["/<<things>>/{<<label>>}"]["get"]["parameters"] ==>
        """,
        pick={"fn": ["openapi_paths", "describe_routes", "document_api", "path_items", "api_paths"]},
        bugs=[
            ("get does not store", "paths.setdefault(path, {})[method.lower()]", "paths.get(path, {})[method.lower()]"),
            (
                "last method wins",
                "paths.setdefault(path, {})[method.lower()] = operation",
                "paths[path] = {method.lower(): operation}",
            ),
            ("missing import", "import re\n\n", ""),
        ],
    ),
    api_task(
        "accept_header",
        (
            "chooses the best media type a client accepts (q values) out of those the server offers, or None for 406",
            "negotiates content: parses Accept with q values and picks from <<offers>>",
        ),
        """
        def <<fn>>(accept, offers=<<offers>>):
            <<doc>>
            wanted = {}
            for part in accept.split(","):
                media, *params = [piece.strip() for piece in part.split(";")]
                weights = [float(param[2:]) for param in params if param.startswith("q=")]
                wanted[media] = weights[0] if weights else 1.0
            scores = {offer: wanted.get(offer, wanted.get("*/*", 0.0)) for offer in offers}
            best = max(offers, key=scores.get)
            return best if scores[best] > 0 else None
        """,
        """
        <<fn>>("text/html;q=0.<<k>>, application/json") ==>
        <<fn>>("*/*;q=0.1, text/csv;q=0.9") ==>
        <<fn>>("image/png") ==>
        """,
        pick={
            "fn": ["negotiate", "best_media_type", "choose_format", "pick_type", "accepts"],
            "offers": [
                '("application/json", "text/csv")',
                '("text/csv", "application/json")',
                '("application/json", "text/html")',
                '("text/html", "text/csv", "application/json")',
                '("application/json",)',
            ],
        },
        bugs=[
            ("text as number", "float(param[2:])", "param[2:]"),
            ("index of an empty list", "weights[0] if weights else 1.0", "weights[0]"),
            ("always something", "best if scores[best] > 0 else None", "best"),
        ],
    ),
    api_task(
        "client_class",
        (
            "Write a small API client class `<<Thing>>Client` over an injected `transport(method, path, body)`; 4xx and 5xx raise ApiError.",
            "Implement `<<Thing>>Client` with get(id) and create(body); answers with status 400 or more raise an ApiError that keeps the status.",
        ),
        """
        class ApiError(Exception):
            def __init__(self, status, detail):
                super().__init__(f"{status}: {detail}")
                self.status = status

        class <<Thing>>Client:
            def __init__(self, transport):
                self.transport = transport

            def _call(self, method, path, body=None):
                status, answer = self.transport(method, path, body)
                if status >= 400:
                    raise ApiError(status, answer.get("detail", ""))
                return answer

            def get(self, id):
                return self._call("GET", f"/<<things>>/{id}")

            def create(self, body):
                return self._call("POST", "/<<things>>", body)
        """,
        """
        def fake(method, path, body):
            if method == "POST":
                return 201, {"id": <<i>>, **body}
            return 404, {"detail": f"no {path}"}

        client = <<Thing>>Client(fake)
        client.create({"<<label>>": <<n1>>}) ==>
        try:
            client.get(<<k>>)
            raised = None
        except ApiError as error:
            raised = (error.status, str(error))
        raised ==>
        """,
        bugs=[
            ("status not kept", "        self.status = status\n", ""),
            ("error returned, not raised", "raise ApiError(", "return ApiError("),
            ("missing self", 'return self._call("GET"', 'return _call("GET"'),
        ],
    ),
    api_task(
        "health_check",
        (
            "runs all health checks of a service and answers 200 or 503 with the state of each",
            "aggregates named checks into a /health answer; a check that raises counts as down",
        ),
        """
        def <<fn>>(checks):
            <<doc>>
            states = {}
            for name, check in checks.items():
                try:
                    states[name] = "up" if check() else "down"
                except Exception as error:
                    states[name] = f"down: {error}"
            healthy = all(state == "up" for state in states.values())
            return (200 if healthy else 503), {"status": "ok" if healthy else "degraded", "checks": states}
        """,
        """
        def broken():
            raise TimeoutError("no answer from <<part>>")

        <<fn>>({"database": lambda: True, "<<part>>": broken}) ==>
        <<fn>>({"database": lambda: True})[0] ==>
        """,
        pick={
            "fn": ["health", "health_check", "readiness", "check_service", "status_page"],
            "part": ["cache", "queue", "mailer", "search", "storage"],
        },
        bugs=[
            ("check not called", '"up" if check() else "down"', '"up" if check else "down"'),
            ("one failure ends all", "except Exception as error:", "except ValueError as error:"),
            ("values of a method", "states.values())", "states.values)"),
        ],
    ),
    api_task(
        "wsgi_app",
        (
            "is a WSGI app that greets by `<<param>>` as JSON on `/<<path>>` and answers 404 elsewhere",
            "answers GET /<<path>>?<<param>>=... with JSON, as a WSGI callable",
        ),
        """
        import json
        from urllib.parse import parse_qs

        def <<fn>>(environ, start_response):
            <<doc>>
            if environ["PATH_INFO"] != "/<<path>>":
                start_response("404 Not Found", [("Content-Type", "application/json")])
                return [b'{"detail": "not found"}']
            name = parse_qs(environ.get("QUERY_STRING", "")).get("<<param>>", ["nobody"])[0]
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps({"message": f"<<hello>>, {name}"}).encode()]
        """,
        """
        seen = []
        body = <<fn>>({"PATH_INFO": "/<<path>>", "QUERY_STRING": "<<param>>=" + <<n1>>}, lambda status, headers: seen.append(status))
        (seen[-1], json.loads(b"".join(body))) ==>
        b"".join(<<fn>>({"PATH_INFO": "/x"}, lambda status, headers: seen.append(status))) ==>
        seen ==>
        """,
        pick={
            "fn": ["application", "app", "wsgi", "service", "hello_app"],
            "path|param|hello": [
                ("hello", "name", "Hello"),
                ("welcome", "guest", "Welcome"),
                ("greet", "who", "Good day"),
                ("salute", "user", "Salut"),
                ("ping", "client", "Pong"),
            ],
        },
        bugs=[
            ("text body", 'f"<<hello>>, {name}"}).encode()]', 'f"<<hello>>, {name}"})]'),
            ("list in the text", '["nobody"])[0]', '["nobody"])'),
            ("status as number", '"200 OK"', "200"),
        ],
    ),
)
