"""Reads executed Jupyter notebooks (nbformat 3 and 4) into envelopes: each cell that ran is an execution."""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from capibara_assets.executions.formats.agents.autogen import agentchat_console
from capibara_assets.executions.formats.agents.autogen import console as autogen_console
from capibara_assets.executions.formats.agents.failures import raised
from capibara_assets.executions.formats.agents.hosted import (
    codeact_console,
    langchain_console,
    langchain_messages,
    smolagents_console,
)
from capibara_assets.executions.formats.agents.hosted.console_dialogues import printed
from capibara_assets.executions.formats.agents.recorded import error_of
from capibara_assets.executions.formats.cell_outputs import strip_ansi
from capibara_assets.executions.formats.envelope_reader import ESTIMATED, UNDATED
from capibara_assets.executions.formats.notebook_tasks import FROM_MARKDOWN, has_heading, task_above
from capibara_assets.executions.formats.strict_json import Fault, json_type
from capibara_assets.storage.digests import canonical_json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIALOGUES = (
    autogen_console,
    agentchat_console,
    codeact_console,
    langchain_console,
    langchain_messages,
    smolagents_console,
)

Envelope = dict[str, Any]


def is_notebook(value: Any) -> bool:
    """Whether a JSON object is a notebook of format 3 or 4."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("nbformat"), int)
        and (isinstance(value.get("cells"), list) or isinstance(value.get("worksheets"), list))
    )


def notebook_envelopes(notebook: dict[str, Any]) -> Iterator[tuple[Envelope, list[str]] | str | Fault]:
    """Yields an envelope and its flags for each cell that ran, a kind for each that did not, a fault for a damaged one.

    Ids are digests of the notebook's code and outputs, so that a copy under another name is the same session. A
    notebook that ran further and was saved again is another session, because its kernel may be a new one. The markdown
    right above a cell is its task, flagged as such.

    Raises:
        Fault: value:nbformat, type:cells.
    """
    cells = []
    for cell in _cells(notebook):
        if (fault := _fault(cell)) is not None:
            yield fault
        else:
            cells.append(cell)
    ran = [(position, cell) for position, cell in enumerate(cells) if _ran(cell)]
    yield from (_kind(cell) for cell in cells if not _ran(cell))
    # the kernel ran them in the order of its counter, which need not be that of the page
    if all(_counter(cell) is not None for _, cell in ran):
        ran.sort(key=lambda item: _counter(item[1]) or 0)
    session = _digest([_language(notebook, {}), [[_source(cell), _outputs(cell), _counter(cell)] for _, cell in ran]])
    times = _times(notebook, [cell for _, cell in ran])
    tasks = _tasks(cells)
    for (position, cell), (timestamp, marks) in zip(ran, times, strict=True):
        envelope = _envelope(notebook, cell, f"nb{session[:20]}", position, timestamp)
        if position in tasks:
            envelope, marks = envelope | {"task": tasks[position]}, [*marks, FROM_MARKDOWN]
        yield envelope, marks


def _cells(notebook: dict[str, Any]) -> list[Any]:
    if notebook["nbformat"] not in (3, 4):
        raise Fault("value:nbformat", f"expected a notebook of format 3 or 4, found {notebook['nbformat']}")
    sheets = notebook.get("worksheets")
    pages = sheets if isinstance(sheets, list) else [notebook]
    cells: list[Any] = []
    for page in pages:
        of_page = page.get("cells", []) if isinstance(page, dict) else page
        if not isinstance(of_page, list):
            raise Fault("type:cells", f"expected a list of cells, found {json_type(of_page)}")
        cells += of_page
    return cells


def _fault(cell: Any) -> Fault | None:
    """What is wrong with a cell's shape."""
    if not isinstance(cell, dict):
        return Fault("type:cells", f"a cell: expected an object, found {json_type(cell)}", cell)
    source, outputs = _source(cell), cell.get("outputs") or []
    if not isinstance(source, str):
        return Fault("type:code", f"the source of a cell: expected text, found {json_type(source)}", cell)
    if not isinstance(outputs, list) or not all(isinstance(output, dict) for output in outputs):
        return Fault("type:execution", "the outputs of a cell: expected a list of objects", cell)
    return None


def is_dialogue(cell_output_text: str) -> bool:
    """Whether what a cell printed is a dialogue in which an agent executed code; its executions are not the cell's."""
    return any(console.is_dialogue(cell_output_text) for console in _DIALOGUES)


def _ran(cell: dict[str, Any]) -> bool:
    return (
        cell.get("cell_type") == "code"
        and bool(_source(cell).strip())
        and (_counter(cell) is not None or bool(_outputs(cell)))
        and not is_dialogue(printed(cell))
    )


def _kind(cell: dict[str, Any]) -> str:
    kind = cell.get("cell_type")
    if kind == "code":
        return "notebook_cell:dialogue" if is_dialogue(printed(cell)) else "notebook_cell:not_run"
    return f"notebook_cell:{kind}" if kind in ("markdown", "raw", "heading", "html") else "notebook_cell:other"


def _tasks(cells: list[dict[str, Any]]) -> dict[int, str]:
    """Position of a code cell -> its task, from the markdown right above it."""
    tasks: dict[int, str] = {}
    above: list[str] = []
    titled = False
    for position, cell in enumerate(cells):
        kind, source = cell.get("cell_type"), _source(cell)
        if kind == "markdown":
            above.append(source)
        elif kind == "heading":  # format 3
            level = cell.get("level")
            above.append("#" * (level if isinstance(level, int) and 1 <= level <= 6 else 1) + f" {source}")
        elif kind == "code" and source.strip():
            if (task := task_above(above, titled)) is not None:
                tasks[position] = task
            titled = titled or any(map(has_heading, above))
            above = []
    return tasks


def _envelope(notebook: dict[str, Any], cell: dict[str, Any], session: str, position: int, timestamp: str) -> Envelope:
    outputs = _outputs(cell)
    identity = [session, position, _source(cell), outputs, _counter(cell)]
    return {
        "sandbox_id": session,
        "execution_id": f"{session}-{_digest(identity)[:20]}",
        "timestamp": timestamp,
        "language": _language(notebook, cell),
        "code": _source(cell),
        "execution": {
            "results": [result for output in outputs if (result := _result(output)) is not None],
            "logs": {name: [_text(o.get("text")) for o in outputs if _stream(o) == name] for name in _STREAMS},
            "error": next((error for output in outputs if (error := _error(output)) is not None), _written(outputs)),
        },
        "execution_count": _counter(cell),
        "duration_ms": _duration_ms(cell),
    }


# --- cells --------------------------------------------------------------------------------------------------------

_STREAMS = ("stdout", "stderr")


def _text(value: Any) -> Any:
    """Text, which notebooks also write as a list of lines; anything else unchanged, for the check to name."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "".join(value)
    return "" if value is None else value


def _source(cell: dict[str, Any]) -> Any:
    return _text(cell.get("source", cell.get("input")))


def _outputs(cell: dict[str, Any]) -> list[dict[str, Any]]:
    return cell.get("outputs") or []


def _counter(cell: dict[str, Any]) -> int | None:
    value = cell.get("execution_count", cell.get("prompt_number"))
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _stream(output: dict[str, Any]) -> str | None:
    if output.get("output_type") != "stream":
        return None
    name = output.get("name", output.get("stream", "stdout"))
    return name if name in _STREAMS else "stdout"


def _result(output: dict[str, Any]) -> dict[str, Any] | None:
    if output.get("output_type") not in ("execute_result", "display_data", "pyout", "update_display_data"):
        return None
    data = output.get("data", output)  # format 3 has the formats beside output_type
    plain = data.get("text/plain", data.get("text")) if isinstance(data, dict) else None
    return {"text": None if plain is None else _text(plain)}


def _error(output: dict[str, Any]) -> dict[str, Any] | None:
    if output.get("output_type") not in ("error", "pyerr"):
        return None
    names = (("name", "ename"), ("value", "evalue"), ("traceback", "traceback"))
    return {ours: output.get(theirs) for ours, theirs in names}


def _written(outputs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """An exception that stands in a result: agents that fill the cells of a notebook themselves write it there."""
    results = [result["text"] for output in outputs if (result := _result(output)) is not None]
    text = next((strip_ansi(said) for said in results if isinstance(said, str) and raised(said)), None)
    if text is None:
        return None
    name, value, traceback = error_of(text, "python", None)
    return {"name": name, "value": value or "", "traceback": traceback or text} if name else None


def _language(notebook: dict[str, Any], cell: dict[str, Any]) -> Any:
    """The cell's own (polyglot notebooks, format 3), else the kernel's, else Python."""
    own = _at(cell, "metadata", "vscode", "languageId") or _at(cell, "metadata", "polyglot_notebook", "kernelName")
    if own or cell.get("language"):
        return own or cell["language"]
    metadata = notebook.get("metadata")
    for keys in (
        ("kernelspec", "language"),
        ("language_info", "name"),
        ("kernel_info", "name"),
        ("kernelspec", "name"),
    ):
        if name := _at(metadata, *keys):
            return {"ir": "r", "deno": "typescript"}.get(str(name).lower(), name)
    return "python"


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical_json(_finite(value))).hexdigest()


def _finite(value: Any) -> Any:
    """`value` with NaN and infinities as text: canonical JSON has neither."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return repr(value) if isinstance(value, float) else value


# --- times --------------------------------------------------------------------------------------------------------


def _times(notebook: dict[str, Any], cells: list[dict[str, Any]]) -> list[tuple[Any, list[str]]]:
    """(timestamp, flags) of each cell: its own, else a millisecond after the cell before it.

    A notebook without any time starts in 1970: a file's times change with every copy, and the table must not.
    """
    own = [_started(cell) for cell in cells]
    dated = [(i, moment) for i, time in enumerate(own) if (moment := _moment(time)) is not None]
    marks = [ESTIMATED]
    if dated:
        first, moment = dated[0]
        last = moment - timedelta(milliseconds=first + 1)
    elif (start := _moment(_at(notebook.get("metadata"), "papermill", "start_time"))) is not None:
        last = start
    else:
        last, marks = _EPOCH, [UNDATED]
    times: list[tuple[Any, list[str]]] = []
    for time in own:
        if time is not None:
            times.append((time, []))
            last = _moment(time) or last
        else:
            last += timedelta(milliseconds=1)
            times.append((last.isoformat(), marks))
    return times


def _started(cell: dict[str, Any]) -> Any:
    """When a cell started, as JupyterLab, papermill, ExecuteTime, Colab or Deepnote note it; None: none of them."""
    metadata = cell.get("metadata")
    for keys in (
        ("execution", "iopub.execute_input"), ("execution", "iopub.status.busy"), ("papermill", "start_time"),
        ("ExecuteTime", "start_time"), ("executionInfo", "timestamp"), ("execution_start",),
    ):  # fmt: skip
        if time := _at(metadata, *keys):
            return time
    return None


def _duration_ms(cell: dict[str, Any]) -> float | None:
    metadata = cell.get("metadata")
    for seconds in ("papermill", "duration"), ("ExecuteTime", "duration"):
        if isinstance(value := _at(metadata, *seconds), float):
            return value * 1000
    for milliseconds in ("executionInfo", "elapsed"), ("execution_millis",):
        if isinstance(value := _at(metadata, *milliseconds), int | float):
            return float(value)
    end = _at(metadata, "execution", "shell.execute_reply") or _at(metadata, "ExecuteTime", "end_time")
    start, stop = _moment(_started(cell)), _moment(end)
    if start is None or stop is None or stop < start:
        return None
    return (stop - start) / timedelta(milliseconds=1)


def _moment(value: Any) -> datetime | None:
    """A time in UTC, None where it is none (the envelope's check then says so)."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _EPOCH + timedelta(milliseconds=value)
    except (ValueError, OverflowError):
        return None
    return None
