"""API families of one cell: URLs, pages, routes, bodies, queries, errors."""

from collections.abc import Sequence

from capibara_assets.domains import Domain
from workshop.experience.api.serving import SERVED
from workshop.experience.families import Cell, Family, Picks, block, bugs_of


def api_task(
    name: str,
    statement: str | tuple[str, ...],
    code: str,
    check: str,
    pick: Picks | None = None,
    bugs: Sequence[tuple[str, str, str]] = (),
) -> Family:
    """A family of two cells: a function that serves or calls an API, and the endpoint that uses it (`SERVED`)."""
    return api_session(name, (Cell(statement, block(code), block(check)),), pick, bugs)


def api_session(
    name: str,
    cells: Sequence[Cell],
    pick: Picks | None = None,
    bugs: Sequence[tuple[str, str, str]] = (),
    bug_cell: int = -1,
) -> Family:
    """A family of several cells that share their variables, and last the one that serves them; bugs are in `bug_cell`."""
    return Family(name, Domain.API, "python", (*cells, SERVED[name]), pick or {}, bugs_of(bugs), bug_cell % len(cells))


FAMILIES = (
    api_task(
        "build_url",
        (
            "builds the URL of the <<things>> endpoint with only those query parameters that are not None",
            "returns `<<base>>/<<things>>?...` with encoded parameters, leaving out None",
        ),
        """
        from urllib.parse import urlencode

        def <<things>>_url(base="<<base>>", **params):
            <<doc>>
            query = urlencode({key: value for key, value in params.items() if value is not None})
            return f"{base}/<<things>>" + (f"?{query}" if query else "")
        """,
        """
        <<things>>_url(<<group>>=<<g1>>, page=<<k>>, <<label>>=None) ==>
        <<things>>_url() ==>
        """,
        pick={
            "base": [
                "https://api.example.com/v1",
                "https://shop.example.org",
                "https://data.example.net/api",
                "http://localhost:8000",
                "https://example.com/v2",
            ]
        },
        bugs=[
            ("missing import", "from urllib.parse import urlencode\n\n", ""),
            ("none kept", " if value is not None", ""),
            ("unpacks keys", "in params.items() if", "in params if"),
        ],
    ),
    api_task(
        "paginate",
        (
            "returns one page of <<things>> as a response body with items, page, pages and total",
            "cuts a list of <<things>> into pages of `size` and describes page `page` (1-based); a page out of range is a 404",
        ),
        """
        from http import HTTPStatus

        def list_<<things>>(<<things>>, page=1, size=<<k>>):
            <<doc>>
            pages = max(-(-len(<<things>>) // size), 1)
            if not 1 <= page <= pages:
                return HTTPStatus.NOT_FOUND, {"detail": f"page {page} of {pages}"}
            start = (page - 1) * size
            body = {"items": <<things>>[start:start + size], "page": page, "pages": pages, "total": len(<<things>>)}
            return HTTPStatus.OK, body
        """,
        """
        status, body = list_<<things>>(<<labels>>, page=1)
        (int(status), body) ==>
        int(list_<<things>>(<<labels>>, page=9)[0]) ==>
        list_<<things>>(<<labels>>, size=2)[1]["pages"] ==>
        """,
        bugs=[
            ("page starts at zero", "start = (page - 1) * size", "start = page * size"),
            ("rounds down", "-(-len(<<things>>) // size)", "len(<<things>>) // size"),
            ("missing import", "from http import HTTPStatus\n\n", ""),
        ],
    ),
    api_task(
        "cursor_pages",
        (
            "returns <<things>> after an opaque cursor, and the next cursor (None at the end)",
            "pages through <<things>> with a base64 cursor that holds the next offset",
        ),
        """
        import base64
        import json

        def next_<<things>>(<<things>>, cursor=None, size=2):
            <<doc>>
            offset = json.loads(base64.urlsafe_b64decode(cursor))["offset"] if cursor else 0
            end = offset + size
            following = None
            if end < len(<<things>>):
                following = base64.urlsafe_b64encode(json.dumps({"offset": end}).encode()).decode()
            return {"data": <<things>>[offset:end], "next": following}
        """,
        """
        first = next_<<things>>(<<labels>>)
        first["data"] ==>
        next_<<things>>(<<labels>>, first["next"])["data"] ==>
        next_<<things>>(<<labels3>>, first["next"])["next"] ==>
        """,
        bugs=[
            ("text instead of bytes", 'json.dumps({"offset": end}).encode()', 'json.dumps({"offset": end})'),
            ("missing import", "import base64\n", ""),
            ("no last page", "if end < len(<<things>>):", "if end <= len(<<things>>) + size:"),
        ],
    ),
    api_task(
        "match_route",
        (
            "matches a path against a template such as `/<<things>>/{<<label>>}` and returns the path parameters, or None",
            "extracts path parameters like `{<<label>>}` from a URL path; None when it does not match",
        ),
        """
        import re

        def <<fn>>(template, path):
            <<doc>>
            pattern = re.sub(r"\\{(\\w+)\\}", r"(?P<\\1>[^/]+)", template)
            match = re.fullmatch(pattern, path)
            return match.groupdict() if match else None
        """,
        """
        <<fn>>("/<<things>>/{<<label>>}", "/<<things>>/" + <<n1>>) ==>
        <<fn>>("/<<things>>/{<<label>>}/<<group>>/{id}", "/<<things>>/x/<<group>>/<<i>>") ==>
        <<fn>>("/<<things>>/{<<label>>}", "/<<things>>/a/b") ==>
        """,
        pick={"fn": ["match_route", "path_params", "match_path", "parse_path", "resolve"]},
        bugs=[
            ("method of None", "match.groupdict() if match else None", "match.groupdict()"),
            ("slash swallowed", "[^/]+)", ".+)"),
            ("missing import", "import re\n\n", ""),
        ],
    ),
    api_task(
        "json_response",
        (
            "builds a JSON response: status line, content headers and encoded body",
            "returns (status, headers, body bytes) for a JSON payload of a <<thing>>",
        ),
        """
        import json

        def <<fn>>(payload, status=<<status>>):
            <<doc>>
            body = json.dumps(payload, sort_keys=True).encode("utf-8")
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
            return status, headers, body
        """,
        """
        status, headers, body = <<fn>>({"<<label>>": <<n1>>, "<<number>>": <<j>>})
        (status, headers["Content-Length"]) ==>
        json.loads(body)["<<number>>"] ==>
        """,
        pick={
            "fn": ["json_response", "to_response", "respond", "make_reply", "encode_reply"],
            "status": ["200", "201", "202"],
        },
        bugs=[
            ("missing import", "import json\n\n", ""),
            ("length of a number", "str(len(body))", "len(str(payload))"),
            ("quotes of Python", "json.dumps(payload, sort_keys=True)", "str(payload)"),
        ],
    ),
    api_task(
        "validate_body",
        (
            "validates the JSON body of a new <<thing>> and returns 422 with the list of errors or 201 with the <<thing>>",
            "creates a <<thing>> from a JSON body: <<label>> (text) and <<number>> (integer, at least 0) are required",
        ),
        """
        import json

        REQUIRED = {"<<label>>": str, "<<number>>": int}

        def create_<<thing>>(raw):
            <<doc>>
            try:
                body = json.loads(raw)
            except json.JSONDecodeError as error:
                return 400, {"detail": f"invalid JSON at {error.pos}"}
            errors = [f"{name}: {kind.__name__} required" for name, kind in REQUIRED.items() if not isinstance(body.get(name), kind)]
            if not errors and body["<<number>>"] < 0:
                errors = ["<<number>>: must not be negative"]
            return (422, {"errors": errors}) if errors else (201, body)
        """,
        """
        create_<<thing>>('{"<<label>>": "x", "<<number>>": <<i>>}') ==>
        create_<<thing>>('{"<<label>>": 5}') ==>
        create_<<thing>>('{"<<label>>": "x", "<<number>>": -1}')[0] ==>
        create_<<thing>>("{")[0] ==>
        """,
        bugs=[
            ("key missing", "if not errors and body", "if body"),
            ("wrong exception", "json.JSONDecodeError as error", "KeyError as error"),
            ("mapping not unpacked", "REQUIRED.items()", "REQUIRED"),
        ],
    ),
    api_task(
        "query_filters",
        (
            "filters and sorts <<things>> by query parameters: `<<group>>`, `min_<<number>>` and `sort` (a minus means descending)",
            "applies the query string of GET /<<things>> to a list: equality on <<group>>, min_<<number>>, sort",
        ),
        """
        from urllib.parse import parse_qs

        def search_<<things>>(<<things>>, query):
            <<doc>>
            params = {key: values[-1] for key, values in parse_qs(query).items()}
            found = [
                row for row in <<things>>
                if params.get("<<group>>", row["<<group>>"]) == row["<<group>>"]
                and row["<<number>>"] >= int(params.get("min_<<number>>", 0))
            ]
            sort = params.get("sort", "<<label>>")
            return sorted(found, key=lambda row: row[sort.lstrip("-")], reverse=sort.startswith("-"))
        """,
        """
        <<things>> = <<rows>>
        [row["<<label>>"] for row in search_<<things>>(<<things>>, "min_<<number>>=<<i>>&sort=-<<number>>")] ==>
        [row["<<label>>"] for row in search_<<things>>(<<things>>, "<<group>>=" + <<g1>>)] ==>
        """,
        bugs=[
            ("text compared with number", 'int(params.get("min_<<number>>", 0))', 'params.get("min_<<number>>", 0)'),
            ("lists as values", "values[-1] for key", "values for key"),
            ("minus kept", 'row[sort.lstrip("-")]', "row[sort]"),
        ],
    ),
    api_task(
        "problem_details",
        (
            "turns exceptions into problem+json answers: KeyError 404, ValueError 422, PermissionError 403, others 500",
            "maps an exception raised by a handler to (status, problem details)",
        ),
        """
        from http import HTTPStatus

        STATUS = {KeyError: 404, ValueError: 422, PermissionError: 403}

        def <<fn>>(handler, *args):
            <<doc>>
            try:
                return 200, handler(*args)
            except Exception as error:
                status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 500)
                return status, {"title": HTTPStatus(status).phrase, "status": status, "detail": str(error)}
        """,
        """
        <<things>> = {<<n1>>: <<i>>}
        <<fn>>(<<things>>.__getitem__, <<n1>>) ==>
        <<fn>>(<<things>>.__getitem__, "x")[1]["title"] ==>
        <<fn>>(int, "many") ==>
        <<fn>>(lambda: 1 / 0)[0] ==>
        """,
        pick={"fn": ["run_handler", "guarded", "call_handler", "to_problem", "handle"]},
        bugs=[
            ("no default", "isinstance(error, kind)), 500)", "isinstance(error, kind)))"),
            ("type compared", "isinstance(error, kind)", "error == kind"),
            ("phrase of a number", "HTTPStatus(status).phrase", "status.phrase"),
        ],
    ),
    api_task(
        "merge_patch",
        (
            "applies a JSON merge patch to a <<thing>>: nested objects merge and null removes a key",
            "implements PATCH /<<things>>/{id} as a recursive merge patch",
        ),
        """
        def <<fn>>(target, patch):
            <<doc>>
            if not isinstance(patch, dict):
                return patch
            merged = dict(target) if isinstance(target, dict) else {}
            for key, value in patch.items():
                if value is None:
                    merged.pop(key, None)
                else:
                    merged[key] = <<fn>>(merged.get(key), value)
            return merged
        """,
        """
        <<thing>> = {"<<label>>": <<n1>>, "<<number>>": <<i>>, "<<group>>": {"name": <<g1>>, "floor": 1}}
        <<fn>>(<<thing>>, {"<<number>>": <<j>>, "<<group>>": {"floor": None}}) ==>
        <<fn>>(<<thing>>, {"<<label>>": None, "note": {"text": "x"}}) ==>
        <<thing>>["<<number>>"] ==>
        """,
        pick={"fn": ["merge_patch", "apply_patch", "patched", "update_document", "json_merge"]},
        bugs=[
            ("pop without default", "merged.pop(key, None)", 'merged.pop(key + "_")'),
            ("overwrites nested objects", "merged[key] = <<fn>>(merged.get(key), value)", "merged[key] = value"),
            ("changes the original", "dict(target) if isinstance(target, dict) else {}", "target"),
        ],
    ),
    api_task(
        "schema_check",
        (
            "checks a value against a small JSON Schema (type, required, properties, minimum, enum) and lists the errors",
            "validates JSON values with a recursive subset of JSON Schema",
        ),
        """
        TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)}

        def <<fn>>(value, schema, path="$"):
            <<doc>>
            if "type" in schema and not isinstance(value, TYPES[schema["type"]]):
                return [f"{path}: not of type {schema['type']}"]
            errors = [f"{path}: {name} missing" for name in schema.get("required", []) if name not in value]
            if "minimum" in schema and value < schema["minimum"]:
                errors.append(f"{path}: below {schema['minimum']}")
            if "enum" in schema and value not in schema["enum"]:
                errors.append(f"{path}: not allowed")
            for name, inner in schema.get("properties", {}).items():
                if name in value:
                    errors += <<fn>>(value[name], inner, f"{path}.{name}")
            return errors
        """,
        """
        schema = {"type": "object", "required": ["<<label>>"], "properties": {"<<number>>": {"type": "integer", "minimum": <<k>>}, "<<group>>": {"enum": <<groups>>}}}
        <<fn>>({"<<label>>": "x", "<<number>>": <<j>>, "<<group>>": <<g2>>}, schema) ==>
        <<fn>>({"<<number>>": 0, "<<group>>": "other"}, schema) ==>
        <<fn>>([], schema) ==>
        """,
        pick={"fn": ["validate", "schema_errors", "check_schema", "conforms", "find_errors"]},
        bugs=[
            ("append for extend", "errors += <<fn>>(", "errors = <<fn>>("),
            ("key error", 'schema.get("required", [])', 'schema["required"]'),
            ("unknown type", 'TYPES[schema["type"]]', "TYPES[schema]"),
        ],
    ),
    api_task(
        "link_header",
        (
            "parses an HTTP Link header into a dictionary from rel to URL",
            'reads pagination links (`rel="next"` ...) from a Link header',
        ),
        """
        import re

        def <<fn>>(header):
            <<doc>>
            links = {}
            for part in header.split(","):
                match = re.match(r'\\s*<([^>]+)>;\\s*rel="?(\\w+)"?', part)
                if match:
                    url, rel = match.groups()
                    links[rel] = url
            return links
        """,
        """
        header = '<https://api.example.com/<<things>>?page=<<k>>>; rel="next", <https://api.example.com/<<things>>?page=<<j>>>; rel="last"'
        <<fn>>(header) ==>
        <<fn>>("") ==>
        """,
        pick={"fn": ["parse_links", "link_header", "page_links", "read_links", "links_of"]},
        bugs=[
            (
                "groups of None",
                "        if match:\n            url, rel = match.groups()\n            links[rel] = url",
                "        url, rel = match.groups()\n        links[rel] = url",
            ),
            ("swapped", "url, rel = match.groups()", "rel, url = match.groups()"),
            ("missing import", "import re\n\n", ""),
        ],
    ),
    api_task(
        "status_summary",
        (
            "summarises response codes by class (2xx, 3xx, ...) and lists the phrase of each error",
            "counts the status codes of a log per class and names the errors",
        ),
        """
        from collections import Counter
        from http import HTTPStatus

        def <<fn>>(codes):
            <<doc>>
            classes = Counter(f"{code // 100}xx" for code in codes)
            errors = sorted({f"{code} {HTTPStatus(code).phrase}" for code in codes if code >= 400})
            return dict(sorted(classes.items())), errors
        """,
        """
        <<fn>>(<<codes>>) ==>
        <<fn>>([]) ==>
        """,
        pick={
            "fn": ["summarize_statuses", "status_report", "count_statuses", "error_overview", "log_summary"],
            "codes": [
                "[200, 201, 404, 200, 500]",
                "[204, 301, 403, 403]",
                "[200, 429, 503, 429, 302]",
                "[401, 200, 422, 418]",
                "[502, 200, 200, 409, 304]",
            ],
        },
        bugs=[
            ("missing import", "from http import HTTPStatus\n", ""),
            ("text compared", "if code >= 400", 'if code >= "400"'),
            ("float class", "code // 100", "code / 100"),
        ],
    ),
)
