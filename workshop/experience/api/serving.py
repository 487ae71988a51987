"""Second cells of the API families: the function of the first cell behind a real endpoint, called by a test client."""

from workshop.experience.families import Cell, block

_IMPORTS = """from starlette.applications import Starlette
from starlette.responses import <<responses>>
from starlette.routing import Route
from starlette.testclient import TestClient"""


def served(
    statement: str | tuple[str, ...], handlers: str, routes: str, check: str, responses: str = "JSONResponse"
) -> Cell:
    """A Starlette application with `handlers` under `routes`, its test client, and calls."""
    imports = _IMPORTS.replace("<<responses>>", responses)
    listed = "\n".join(f"    {route.strip()}," for route in block(routes).split("\n"))
    code = f"{imports}\n\n{block(handlers)}\n\napp = Starlette(routes=[\n{listed}\n])\nclient = TestClient(app)"
    return Cell(statement, code, block(check))


#: Family -> the cell that serves its function.
SERVED: dict[str, Cell] = {
    "build_url": served(
        (
            "Serve GET /<<things>> so that it echoes its query, and call it with the URL builder.",
            "Put up a Starlette endpoint /<<things>> that returns path and query parameters; try <<things>>_url on it.",
        ),
        """
        async def echo(request):
            return JSONResponse({"path": request.url.path, "query": dict(request.query_params)})
        """,
        'Route("/<<things>>", echo)',
        """
        client.get(<<things>>_url(base="", <<group>>=<<g1>>, page=<<k>>)).json() ==>
        client.get("/nowhere").status_code ==>
        """,
    ),
    "paginate": served(
        (
            "Expose the pages as GET /<<things>>?page=N with Starlette and fetch a good and a missing page.",
            "Serve list_<<things>> over HTTP; the status of the function becomes the response's status.",
        ),
        """
        async def index(request):
            status, body = list_<<things>>(<<labels>>, page=int(request.query_params.get("page", 1)))
            return JSONResponse(body, status_code=int(status))
        """,
        'Route("/<<things>>", index)',
        """
        client.get("/<<things>>?page=1").json()["total"] ==>
        client.get("/<<things>>", params={"page": 99}).status_code ==>
        """,
    ),
    "cursor_pages": served(
        (
            "Serve the cursor pages as GET /<<things>> and follow the cursor once.",
            "Make an endpoint with a `cursor` parameter out of next_<<things>> and read two pages with a client.",
        ),
        """
        async def page(request):
            return JSONResponse(next_<<things>>(<<labels>>, request.query_params.get("cursor")))
        """,
        'Route("/<<things>>", page)',
        """
        first = client.get("/<<things>>").json()
        second = client.get("/<<things>>", params={"cursor": first["next"]}).json()
        first["data"] + second["data"] ==>
        """,
    ),
    "match_route": served(
        (
            "Answer any path through the matcher: parameters as JSON, 404 when nothing matches.",
            "Serve a catch-all route that resolves /<<things>>/{<<label>>} itself.",
        ),
        """
        async def catch_all(request):
            found = <<fn>>("/<<things>>/{<<label>>}", request.url.path)
            return JSONResponse(found or {"detail": "no route"}, status_code=200 if found else 404)
        """,
        'Route("/{path:path}", catch_all)',
        """
        client.get("/<<things>>/alpha").json() ==>
        client.get("/<<things>>/alpha/beta").status_code ==>
        """,
    ),
    "validate_body": served(
        (
            "Serve POST /<<things>> with create_<<thing>> and send a good, a wrong and a broken body.",
            "Expose create_<<thing>> as POST /<<things>>: its status and body are the response.",
        ),
        """
        async def create(request):
            status, answer = create_<<thing>>(await request.body())
            return JSONResponse(answer, status_code=status)
        """,
        'Route("/<<things>>", create, methods=["POST"])',
        """
        client.post("/<<things>>", json={"<<label>>": "x", "<<number>>": <<i>>}).status_code ==>
        client.post("/<<things>>", json={"<<number>>": "many"}).json() ==>
        client.post("/<<things>>", content="{").status_code ==>
        """,
    ),
    "query_filters": served(
        (
            "Serve the search as GET /<<things>> and ask for those with at least <<i>> <<number_words>>.",
            "Make GET /<<things>> answer filtered and sorted <<label>>s from the query string.",
        ),
        """
        async def search(request):
            rows = search_<<things>>(<<rows>>, request.url.query)
            return JSONResponse([row["<<label>>"] for row in rows])
        """,
        'Route("/<<things>>", search)',
        """
        client.get("/<<things>>", params={"min_<<number>>": <<i>>, "sort": "-<<number>>"}).json() ==>
        client.get("/<<things>>?<<group>>=none").json() ==>
        """,
    ),
    "json_response": served(
        (
            "Return the built response from an endpoint and look at status, type and body on the client's side.",
            "Serve GET /<<thing>> through the response builder.",
        ),
        """
        async def show(request):
            status, headers, body = <<fn>>({"<<label>>": <<n1>>, "<<number>>": <<j>>})
            return Response(body, status_code=status, headers=headers)
        """,
        'Route("/<<thing>>", show)',
        """
        response = client.get("/<<thing>>")
        (response.status_code, response.headers["content-type"]) ==>
        response.json() ==>
        """,
        responses="Response",
    ),
    "problem_details": served(
        (
            "Serve GET /<<things>>/{<<label>>} so that an unknown <<label>> is a problem+json 404.",
            "Let an endpoint look <<things>> up through the guarded handler.",
        ),
        """
        STORE = {<<n1>>: {"<<number>>": <<i>>}}

        async def show(request):
            status, body = <<fn>>(STORE.__getitem__, request.path_params["<<label>>"])
            return JSONResponse(body, status_code=status, media_type="application/problem+json" if status > 399 else None)
        """,
        'Route("/<<things>>/{<<label>>}", show)',
        """
        client.get("/<<things>>/" + <<n1>>).json() ==>
        missing = client.get("/<<things>>/none")
        (missing.status_code, missing.headers["content-type"]) ==>
        """,
    ),
    "merge_patch": served(
        (
            "Serve GET and PATCH of one <<thing>> and change its <<number_words>> through the client.",
            "Put the merge patch behind PATCH /<<things>>/1.",
        ),
        """
        STORE = {1: {"<<label>>": <<n1>>, "<<number>>": <<i>>, "tags": {"new": True}}}

        async def one(request):
            if request.method == "PATCH":
                STORE[1] = <<fn>>(STORE[1], await request.json())
            return JSONResponse(STORE[1])
        """,
        'Route("/<<things>>/1", one, methods=["GET", "PATCH"])',
        """
        client.patch("/<<things>>/1", json={"<<number>>": <<j>>, "tags": {"new": None}}).json() ==>
        client.get("/<<things>>/1").json()["<<number>>"] ==>
        client.put("/<<things>>/1", json={}).status_code ==>
        """,
    ),
    "schema_check": served(
        (
            "Validate the body of POST /<<things>> with the schema: 201, or 422 with the errors.",
            "Use the validator in an endpoint that creates <<things>>.",
        ),
        """
        async def create(request):
            body = await request.json()
            errors = <<fn>>(body, schema)
            return JSONResponse({"errors": errors} if errors else body, status_code=422 if errors else 201)
        """,
        'Route("/<<things>>", create, methods=["POST"])',
        """
        client.post("/<<things>>", json={"<<label>>": "x", "<<number>>": <<j>>}).status_code ==>
        client.post("/<<things>>", json={"<<number>>": 0}).json() ==>
        """,
    ),
    "link_header": served(
        (
            "Serve pages with a Link header and read the next page's URL on the client's side.",
            "Answer GET /<<things>> with a Link header and parse it in the client.",
        ),
        """
        async def index(request):
            page = int(request.query_params.get("page", 1))
            link = f'</<<things>>?page={page + 1}>; rel="next", </<<things>>?page=<<j>>>; rel="last"'
            return JSONResponse({"page": page}, headers={"Link": link})
        """,
        'Route("/<<things>>", index)',
        """
        links = <<fn>>(client.get("/<<things>>?page=<<k>>").headers["link"])
        links ==>
        client.get(links["next"]).json() ==>
        """,
    ),
    "status_summary": served(
        (
            "Serve some endpoints with different status codes, call them all, and summarise.",
            "Call a small service with good and bad requests and summarise the status codes.",
        ),
        """
        async def fine(request):
            return JSONResponse([<<n1>>])

        async def gone(request):
            return JSONResponse({"detail": "gone"}, status_code=410)
        """,
        """
        Route("/<<things>>", fine)
        Route("/old", gone)
        """,
        """
        answers = [client.get(path).status_code for path in ("/<<things>>", "/old", "/<<thing>>")]
        answers.append(client.post("/<<things>>").status_code)
        <<fn>>(answers) ==>
        """,
    ),
    "bearer_auth": served(
        (
            "Protect GET /<<things>> with the bearer check and call it with and without a token.",
            "Serve <<things>> only to requests with a known bearer token.",
        ),
        """
        async def private(request):
            status, body = <<fn>>({"Authorization": request.headers.get("authorization", "")})
            return JSONResponse(body if status != 200 else {**body, "<<things>>": <<labels3>>}, status_code=status)
        """,
        'Route("/<<things>>", private)',
        """
        client.get("/<<things>>", headers={"Authorization": "Bearer <<token>>"}).json() ==>
        client.get("/<<things>>").status_code ==>
        client.get("/<<things>>", headers={"Authorization": "Bearer old"}).status_code ==>
        """,
    ),
    "basic_auth": served(
        (
            "Ask for HTTP basic credentials on GET /<<things>>: 401 with WWW-Authenticate, else the user's name.",
            "Serve an endpoint behind basic authentication and log in with the client.",
        ),
        """
        async def private(request):
            credentials = <<fn>>(request.headers.get("authorization", ""))
            if credentials != ("<<user>>", "<<word>>"):
                return JSONResponse({"detail": "who are you?"}, status_code=401, headers={"WWW-Authenticate": "Basic"})
            return JSONResponse({"user": credentials[0]})
        """,
        'Route("/<<things>>", private)',
        """
        client.get("/<<things>>", auth=("<<user>>", "<<word>>")).json() ==>
        refused = client.get("/<<things>>")
        (refused.status_code, refused.headers["www-authenticate"]) ==>
        """,
    ),
    "etag": served(
        (
            "Serve the <<thing>> with its ETag and make a conditional second request.",
            "Expose GET /<<thing>> with 304 support and try If-None-Match.",
        ),
        """
        async def show(request):
            conditions = {"If-None-Match": request.headers.get("if-none-match")}
            status, headers, body = get_<<thing>>({"<<label>>": <<n1>>, "<<number>>": <<j>>}, conditions)
            return Response(body, status_code=status, headers=headers, media_type="application/json")
        """,
        'Route("/<<thing>>", show)',
        """
        first = client.get("/<<thing>>")
        again = client.get("/<<thing>>", headers={"If-None-Match": first.headers["etag"]})
        (first.status_code, again.status_code, again.text) ==>
        """,
        responses="Response",
    ),
    "rate_limit": served(
        (
            "Limit GET /<<things>> to two calls and send four; show the status codes.",
            "Put the limiter before an endpoint (2 calls) and see when 429 comes.",
        ),
        """
        limiter = <<Name>>(limit=2, window=<<w>>)

        async def index(request):
            status, headers = limiter.check("client", now=0)
            return JSONResponse(<<labels3>> if status == 200 else [], status_code=status, headers=headers)
        """,
        'Route("/<<things>>", index)',
        """
        responses = [client.get("/<<things>>") for _ in range(4)]
        [response.status_code for response in responses] ==>
        responses[-1].headers["retry-after"] ==>
        """,
    ),
    "retry_backoff": served(
        (
            "Make an endpoint fail twice with 503 and fetch it with the retrying client.",
            "Serve a flaky GET /<<things>> and use the retry function on it.",
        ),
        """
        calls = []

        async def flaky(request):
            calls.append(request.url.path)
            return JSONResponse({"<<things>>": <<k>>}, status_code=503 if len(calls) < 3 else 200)
        """,
        'Route("/<<things>>", flaky)',
        """
        pauses = []
        <<fn>>(lambda: client.get("/<<things>>").status_code, pauses.append) ==>
        (len(calls), pauses) ==>
        """,
    ),
    "idempotency": served(
        (
            "Serve POST /<<things>> with the Idempotency-Key header and send the same order twice.",
            "Expose the idempotent POST over HTTP.",
        ),
        """
        service = <<Thing>>Api()

        async def create(request):
            status, answer = service.post(await request.json(), request.headers.get("idempotency-key"))
            return JSONResponse(answer, status_code=status)
        """,
        'Route("/<<things>>", create, methods=["POST"])',
        """
        headers = {"Idempotency-Key": "k<<j>>"}
        answers = [client.post("/<<things>>", json={"<<label>>": <<n1>>}, headers=headers).json() for _ in range(2)]
        answers ==>
        client.post("/<<things>>", json={"<<label>>": <<n2>>}, headers=headers).status_code ==>
        """,
    ),
    "cors": served(
        (
            "Add the CORS headers to GET /<<things>> and call it from an allowed and another origin.",
            "Serve <<things>> with CORS headers.",
        ),
        """
        async def index(request):
            return JSONResponse(<<labels3>>, headers=<<fn>>({"Origin": request.headers.get("origin")}))
        """,
        'Route("/<<things>>", index)',
        """
        allowed = client.get("/<<things>>", headers={"Origin": "<<origin>>"})
        allowed.headers["access-control-allow-origin"] ==>
        "vary" in client.get("/<<things>>", headers={"Origin": "https://other.example"}).headers ==>
        """,
    ),
    "cookies": served(
        (
            "Serve /login, which sets the cookie, and /me, which reads it back.",
            "Set a session cookie in one endpoint and recognise it in another.",
        ),
        """
        async def login(request):
            return JSONResponse({"ok": True}, headers={"Set-Cookie": set_cookie("v<<k>>")})

        async def me(request):
            return JSONResponse({"session": <<fn>>(request.headers.get("cookie", ""))})
        """,
        """
        Route("/login", login, methods=["POST"])
        Route("/me", me)
        """,
        """
        client.get("/me").json() ==>
        client.post("/login").headers["set-cookie"] ==>
        client.get("/me", headers={"Cookie": "<<cookie>>=v<<k>>"}).json() ==>
        """,
    ),
    "webhook_signature": served(
        (
            "Receive the webhook at POST /hooks: 204 when the signature fits, else 401.",
            "Serve a webhook endpoint that verifies X-Signature.",
        ),
        """
        async def hook(request):
            body = await request.body()
            valid = <<fn>>(body, request.headers.get("x-signature"), b"demo")
            return Response(status_code=204 if valid else 401)
        """,
        'Route("/hooks", hook, methods=["POST"])',
        """
        payload = b'{"event": "<<thing>>.<<event>>"}'
        client.post("/hooks", content=payload, headers={"X-Signature": sign(payload, b"demo")}).status_code ==>
        client.post("/hooks", content=payload).status_code ==>
        """,
        responses="Response",
    ),
    "signed_token": served(
        (
            "Serve POST /token for <<user>> and GET /me, which needs the token as a bearer.",
            "Hand out signed tokens over HTTP and check them on another endpoint.",
        ),
        """
        async def token(request):
            return JSONResponse({"token": issue({"sub": "<<user>>", "exp": <<big>>}, b"demo")}, status_code=201)

        async def me(request):
            claims = <<fn>>(request.headers.get("authorization", "").removeprefix("Bearer "), b"demo", now=1)
            return JSONResponse(claims or {"detail": "bad token"}, status_code=200 if claims else 401)
        """,
        """
        Route("/token", token, methods=["POST"])
        Route("/me", me)
        """,
        """
        bearer = client.post("/token").json()["token"]
        client.get("/me", headers={"Authorization": f"Bearer {bearer}"}).json() ==>
        client.get("/me", headers={"Authorization": "Bearer x.y"}).status_code ==>
        """,
    ),
    "cache_control": served(
        (
            "Send Cache-Control with GET /<<things>> and read it on the client's side.",
            "Serve <<things>> with a caching policy and parse the header of the response.",
        ),
        """
        async def index(request):
            return JSONResponse(<<labels3>>, headers={"Cache-Control": "<<cc>>"})
        """,
        'Route("/<<things>>", index)',
        """
        <<fn>>(client.get("/<<things>>").headers["cache-control"]) ==>
        """,
    ),
    "http_dates": served(
        (
            "Serve GET /<<things>> with Last-Modified and answer a conditional request with 304.",
            "Use the date check in an endpoint.",
        ),
        """
        async def index(request):
            conditions = {"If-Modified-Since": request.headers.get("if-modified-since")}
            status, headers = <<fn>>(datetime(<<year>>, <<month>>, <<day>>, tzinfo=timezone.utc), conditions)
            return Response("" if status == 304 else "<<things>>", status_code=status, headers=headers)
        """,
        'Route("/<<things>>", index)',
        """
        first = client.get("/<<things>>")
        (first.text, first.headers["last-modified"]) ==>
        client.get("/<<things>>", headers={"If-Modified-Since": first.headers["last-modified"]}).status_code ==>
        """,
        responses="Response",
    ),
    "crud_resource": served(
        (
            "Put the resource behind /<<things>> and /<<things>>/{id} and create, read and delete one.",
            "Serve the CRUD resource with Starlette.",
        ),
        """
        resource = <<Thing>>Resource()

        async def endpoint(request):
            body = await request.json() if request.method == "POST" else None
            status, answer = resource.handle(request.method, request.path_params.get("id"), body)
            return Response(status_code=204) if answer is None else JSONResponse(answer, status_code=status)
        """,
        """
        Route("/<<things>>", endpoint, methods=["GET", "POST"])
        Route("/<<things>>/{id:int}", endpoint, methods=["GET", "DELETE"])
        """,
        """
        client.post("/<<things>>", json={"<<label>>": <<n2>>}).json() ==>
        client.get("/<<things>>").json() ==>
        [client.delete("/<<things>>/1").status_code, client.get("/<<things>>/1").status_code] ==>
        """,
        responses="JSONResponse, Response",
    ),
    "router_decorator": served(
        (
            "Forward all requests of a real server to the router's dispatch.",
            "Serve the little router through one catch-all Starlette route.",
        ),
        """
        router = <<Name>>()

        @router.route("GET", "/<<things>>")
        def index():
            return <<labels3>>

        async def forward(request):
            status, body = router.dispatch(request.method, request.url.path)
            return JSONResponse(body, status_code=status)
        """,
        'Route("/{path:path}", forward, methods=["GET", "PUT"])',
        """
        client.get("/<<things>>").json() ==>
        [client.put("/<<things>>").status_code, client.get("/<<group>>").status_code] ==>
        """,
    ),
    "middleware": served(
        (
            "Serve GET /me through the wrapped handler; the user comes from a header.",
            "Put the middleware stack behind an endpoint and show status and added header.",
        ),
        """
        pipeline_app = <<fn>>(lambda request: {"status": 200, "body": request["user"]}, [add_<<what>>, require_user])

        async def me(request):
            answer = pipeline_app({"user": request.headers.get("x-user")})
            return JSONResponse(answer.get("body"), status_code=answer["status"], headers=answer["headers"])
        """,
        'Route("/me", me)',
        """
        response = client.get("/me", headers={"X-User": "<<user>>"})
        (response.json(), response.headers["x-<<what>>"]) ==>
        client.get("/me").status_code ==>
        """,
    ),
    "json_rpc": served(
        (
            "Serve JSON-RPC at POST /rpc and call <<m1>>.",
            "Expose the dispatcher as POST /rpc; try a call and an unknown method.",
        ),
        """
        async def rpc(request):
            return JSONResponse(<<fn>>(await request.body()))
        """,
        'Route("/rpc", rpc, methods=["POST"])',
        """
        client.post("/rpc", json={"id": 1, "method": "<<m1>>", "params": [<<j>>, <<k>>]}).json()["result"] ==>
        client.post("/rpc", json={"id": 2, "method": "unknown"}).json()["error"] ==>
        """,
    ),
    "field_selection": served(
        ("Serve the <<thing>> with `?fields=` and ask for parts of it.", "Add field selection to GET /<<things>>/1."),
        """
        async def one(request):
            document = {"<<label>>": <<n1>>, "<<number>>": <<i>>, "<<group>>": {"name": <<g1>>}}
            fields = request.query_params.get("fields")
            return JSONResponse(<<fn>>(document, fields) if fields else document)
        """,
        'Route("/<<things>>/1", one)',
        """
        client.get("/<<things>>/1?fields=<<label>>,<<group>>.name").json() ==>
        len(client.get("/<<things>>/1").json()) ==>
        """,
    ),
    "server_sent_events": served(
        (
            "Stream <<things>> as server-sent events and parse what the client receives.",
            "Serve GET /events as text/event-stream with one event per <<thing>>.",
        ),
        """
        async def events(request):
            async def stream():
                for <<label>> in <<labels3>>:
                    yield f"event: <<thing>>\\ndata: {<<label>>}\\n\\n"
            return StreamingResponse(stream(), media_type="text/event-stream")
        """,
        'Route("/events", events)',
        """
        response = client.get("/events")
        response.headers["content-type"] ==>
        <<fn>>(response.text) ==>
        """,
        responses="StreamingResponse",
    ),
    "job_status": served(
        (
            "Serve the jobs: POST /<<things>>/jobs answers 202 with Location, GET tells the state.",
            "Put the job API behind HTTP and poll a job until it redirects.",
        ),
        """
        queue = <<Thing>>Jobs()

        async def submit(request):
            status, headers = queue.submit(await request.json())
            return Response(status_code=status, headers=headers)

        async def poll(request):
            status, answer = queue.status(request.path_params["job"])
            return Response(status_code=status, headers=answer if status == 303 else None)
        """,
        """
        Route("/<<things>>/jobs", submit, methods=["POST"])
        Route("/<<things>>/jobs/{job}", poll)
        """,
        """
        location = client.post("/<<things>>/jobs", json={"<<label>>": <<n1>>}).headers["location"]
        client.get(location).status_code ==>
        queue.finish("job-1", <<j>>)
        done = client.get(location, follow_redirects=False)
        (done.status_code, done.headers["location"]) ==>
        """,
        responses="Response",
    ),
    "bulk_endpoint": served(
        (
            "Serve POST /<<things>>/bulk and send three items, one of them incomplete.",
            "Expose the bulk creation over HTTP.",
        ),
        """
        names = set()

        async def bulk(request):
            status, results = bulk_create_<<things>>(await request.json(), names)
            return JSONResponse(results, status_code=status)
        """,
        'Route("/<<things>>/bulk", bulk, methods=["POST"])',
        """
        response = client.post("/<<things>>/bulk", json=[{"<<label>>": <<n1>>}, {}, {"<<label>>": <<n4>>}])
        (response.status_code, [item["status"] for item in response.json()]) ==>
        sorted(names) ==>
        """,
    ),
    "request_objects": served(
        (
            "Send the prepared request to a test application and show what arrives.",
            "Let a Starlette endpoint echo method, type and body of the built request.",
        ),
        """
        async def echo(request):
            return JSONResponse({"method": request.method, "type": request.headers["content-type"], "body": await request.json()})
        """,
        'Route("/<<things>>", echo, methods=["POST", "PUT", "PATCH"])',
        """
        request = <<fn>>({"<<label>>": <<n2>>}, "demo")
        client.request(request.get_method(), "/<<things>>", content=request.data, headers=dict(request.header_items())).json() ==>
        """,
    ),
    "async_gather": served(
        (
            "Serve GET /<<things>>/{id} and fetch several ids concurrently through the client.",
            "Use the concurrent fetcher against a real endpoint.",
        ),
        """
        async def one(request):
            id = request.path_params["id"]
            return JSONResponse({"id": id, "<<number>>": id * <<j>>})
        """,
        'Route("/<<things>>/{id:int}", one)',
        """
        async def load(id):
            return client.get(f"/<<things>>/{id}").json()

        await <<fn>>([2, <<k>>, 1], load) ==>
        """,
    ),
    "openapi_paths": served(
        (
            "Serve the description at GET /openapi.json and list its paths from the client.",
            "Publish the paths as an OpenAPI 3.1 document.",
        ),
        """
        async def document(request):
            paths = <<fn>>([("GET", "/<<things>>", "list"), ("PUT", "/<<things>>/{<<label>>}", "replace")])
            return JSONResponse({"openapi": "3.1.0", "info": {"title": "<<things>>", "version": "<<k>>"}, "paths": paths})
        """,
        'Route("/openapi.json", document)',
        """
        described = client.get("/openapi.json").json()
        sorted(described["paths"]) ==>
        described["paths"]["/<<things>>/{<<label>>}"]["put"]["parameters"][0]["name"] ==>
        """,
    ),
    "accept_header": served(
        (
            "Serve <<things>> as JSON or CSV by the Accept header, 406 otherwise.",
            "Use the negotiation in GET /<<things>>.",
        ),
        """
        async def index(request):
            media = <<fn>>(request.headers.get("accept", "*/*"), ("application/json", "text/csv"))
            if media is None:
                return Response(status_code=406)
            return JSONResponse(<<labels3>>) if media.endswith("json") else Response(",".join(<<labels3>>), media_type=media)
        """,
        'Route("/<<things>>", index)',
        """
        client.get("/<<things>>", headers={"Accept": "text/csv"}).text ==>
        client.get("/<<things>>", headers={"Accept": "application/json"}).json() ==>
        client.get("/<<things>>", headers={"Accept": "image/png"}).status_code ==>
        """,
        responses="JSONResponse, Response",
    ),
    "client_class": served(
        (
            "Give the client class a transport over a real test application.",
            "Serve /<<things>> and use <<Thing>>Client through the test client.",
        ),
        """
        async def create(request):
            return JSONResponse({"id": <<j>>, **await request.json()}, status_code=201)

        async def missing(request):
            return JSONResponse({"detail": "no such <<thing>>"}, status_code=404)

        def transport(method, path, body):
            response = client.request(method, path, json=body)
            return response.status_code, response.json()
        """,
        """
        Route("/<<things>>", create, methods=["POST"])
        Route("/<<things>>/{id}", missing)
        """,
        """
        service = <<Thing>>Client(transport)
        service.create({"<<label>>": <<n3>>}) ==>
        try:
            service.get(<<i>>)
            raised = None
        except ApiError as error:
            raised = str(error)
        raised ==>
        """,
    ),
    "health_check": served(
        (
            "Serve GET /health with two checks, one of which can be broken.",
            "Expose the aggregated checks at /health and break one of them.",
        ),
        """
        state = {"<<part>>": True}

        async def health_endpoint(request):
            status, body = <<fn>>({"database": lambda: True, "<<part>>": lambda: state["<<part>>"]})
            return JSONResponse(body, status_code=status)
        """,
        'Route("/health", health_endpoint)',
        """
        client.get("/health").status_code ==>
        state["<<part>>"] = False
        client.get("/health").json() ==>
        """,
    ),
    "login_session": served(
        (
            "Put the service behind HTTP: /login and /me as real endpoints.",
            "Serve `handle` with Starlette and log in over HTTP.",
        ),
        """
        async def forward(request):
            body = await request.json() if request.method == "POST" else None
            bearer = {"Authorization": request.headers.get("authorization", "")}
            status, answer = handle(request.method, request.url.path, bearer, body)
            return JSONResponse(answer, status_code=status)
        """,
        """
        Route("/login", forward, methods=["POST"])
        Route("/me", forward)
        """,
        """
        given = client.post("/login", json={"user": "<<user>>", "word": "<<word>>"}).json()["token"]
        client.get("/me", headers={"Authorization": f"Bearer {given}"}).json() ==>
        client.get("/me").status_code ==>
        """,
    ),
    "typed_model": served(
        ("Serve POST /<<things>> with the handler and send a good and a bad body.", "Expose post_<<thing>> over HTTP."),
        """
        async def create(request):
            status, answer = post_<<thing>>(await request.json())
            return JSONResponse(answer, status_code=status)
        """,
        'Route("/<<things>>", create, methods=["POST"])',
        """
        client.post("/<<things>>", json={"<<label>>": <<n3>>, "<<number>>": <<k>>}).json()["<<label>>"] ==>
        client.post("/<<things>>", json={"color": "red"}).json() ==>
        """,
    ),
    "versioned_api": served(
        (
            "Serve both versions and ask for them by path and by header.",
            "Put `call` behind a catch-all endpoint and test the versions over HTTP.",
        ),
        """
        async def forward(request):
            version = request.headers.get("api-version")
            status, answer = call(request.url.path, {"Api-Version": version} if version else None)
            return JSONResponse(answer, status_code=status)
        """,
        'Route("/{path:path}", forward)',
        """
        client.get("/v1/<<things>>").json() ==>
        client.get("/<<things>>", headers={"Api-Version": "v2"}).status_code ==>
        client.get("/v1/none").json() ==>
        """,
    ),
    "transport_retries": served(
        (
            "Serve a flaky endpoint that sends Retry-After and fetch it with the retrying client.",
            "Use the client on a Starlette endpoint that is unavailable at first.",
        ),
        """
        seen = []

        async def flaky(request):
            seen.append(request.url.path)
            if len(seen) <= <<f>>:
                return JSONResponse({}, status_code=503, headers={"Retry-After": "<<k>>"})
            return JSONResponse({"<<label>>": <<n2>>})

        def http(method, path):
            response = client.request(method, path)
            return response.status_code, response.headers, response.json()
        """,
        'Route("/<<things>>/{id}", flaky)',
        """
        naps = []
        <<fn>>(http, "/<<things>>/<<j>>", naps.append) ==>
        (len(seen), naps) ==>
        """,
    ),
    "pagination_client": served(
        (
            "Serve the pages over HTTP and let the generator follow them there.",
            "Replace the fake endpoint by a Starlette one and walk its pages.",
        ),
        """
        async def index(request):
            offset = int(request.query_params.get("offset", 0))
            following = f"/<<things>>?offset={offset + 2}" if offset + 2 < len(<<THINGS>>) else None
            return JSONResponse({"items": <<THINGS>>[offset:offset + 2], "next": following})

        def get(path):
            return client.get(path).json()
        """,
        'Route("/<<things>>", index)',
        """
        list(<<fn>>("/<<things>>")) == <<THINGS>> ==>
        client.get("/<<things>>?offset=4").json()["next"] ==>
        """,
    ),
    "wsgi_app": Cell(
        (
            "Run the WSGI app on a local port and call it with requests.",
            "Serve the app with wsgiref in a thread and make two requests to it.",
        ),
        block("""
        import threading
        from wsgiref.simple_server import WSGIRequestHandler, make_server

        import requests

        class Quiet(WSGIRequestHandler):
            def log_message(self, *args):
                pass

        server = make_server("127.0.0.1", 0, <<fn>>, handler_class=Quiet)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/<<path>>"
        """),
        block("""
        requests.get(url, params={"<<param>>": <<n2>>}, timeout=5).json() ==>
        requests.get(url + "/none", timeout=5).status_code ==>
        server.shutdown()
        """),
    ),
    "http_server": Cell(
        (
            "Start the server again on another port and read one <<thing>> with requests.",
            "Use requests to read a single <<thing>> from a second instance of the server.",
        ),
        block("""
        import requests

        second = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=second.serve_forever, daemon=True).start()
        first_<<label>> = next(iter(<<THINGS>>))
        response = requests.get(f"http://127.0.0.1:{second.server_port}/<<things>>/{first_<<label>>}", timeout=5)
        second.shutdown()
        """),
        block("""
        (response.status_code, response.headers["Content-Type"]) ==>
        response.json()["<<number>>"] ==>
        """),
    ),
    "post_server": Cell(
        (
            "Write a client class for the service with a requests session and use it on a new instance.",
            "Wrap the service in a `<<Thing>>Client` based on requests.Session and create a <<thing>>.",
        ),
        block("""
        import requests

        class <<Thing>>Client:
            def __init__(self, base):
                self.base, self.session = base, requests.Session()

            def create(self, **fields):
                response = self.session.post(f"{self.base}/<<things>>", json=fields, timeout=5)
                response.raise_for_status()
                return response.json()

        again = HTTPServer(("127.0.0.1", 0), <<Thing>>Handler)
        threading.Thread(target=again.serve_forever, daemon=True).start()
        client = <<Thing>>Client(f"http://127.0.0.1:{again.server_port}")
        """),
        block("""
        client.create(<<label>>=<<n2>>, <<number>>=<<k>>) ==>
        try:
            client.create(<<number>>=<<i>>)
            outcome = "created"
        except requests.HTTPError as error:
            outcome = error.response.status_code
        outcome ==>
        again.shutdown()
        """),
    ),
}
