"""Row types of the experience tables: executions, quarantined lines, log files, patterns and repair pairs."""

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field

from capibara_assets.storage.records import Record

Outcome = Literal["ok", "error", "timeout", "unknown"]
FAILED = ("error", "timeout")
SOLVED = "solves_task"  # flag: a verdict that was recorded says that it solves its session's one task
UNSOLVED = "fails_task"  # flag: attempts at its session's one task were judged, and no verdict says that it solves it
WRONG_OUTPUT = "WrongOutput"  # error name of code that ends well and shows something else than it should
SHELL, PATCH = "bash", "patch"  # languages of a command and of an edit of a file
SHELLS = (SHELL, "powershell")  # languages of commands
HIDDEN_EXIT = "exit_code_hidden_by_pipe"  # flag: the outcome is unknown although the log has an exit code
PatternKind = Literal[
    "function",
    "class",
    "loop",
    "comprehension",
    "async",
    "error_handling",
    "sql_query",
    "sql_clause",
    "api_call",
    "dataframe",
    "training",
    "training_loop",
]


class Execution(Record):
    """One run of code in a sandbox: redacted, classified, scored."""

    schema_name: ClassVar[str] = "Execution"
    schema_version: ClassVar[int] = 2
    key: ClassVar[tuple[str, ...]] = ("execution_id",)
    volatile: ClassVar[frozenset[str]] = frozenset({"source_file", "source_line", "source_offset"})

    execution_id: str = Field(description="Unique id of the execution")
    sandbox_id: str = Field(description="Sandbox (one session: its executions share their variables)")
    context_id: str | None = Field(description="Code context inside the sandbox; state belongs to (sandbox, context)")
    agent_id: str | None = Field(description="Agent that sent the code")
    tenant: str | None = Field(description="Tenant that owns the record")
    timestamp: datetime = Field(description="Start, UTC")
    template_id: str | None = Field(description="Sandbox template")
    language: str = Field(description="Lower-case language: python, javascript, typescript, sql, bash, r, java, ...")
    code: str = Field(description="Code as sent, secrets replaced")
    task: str | None = Field(description="What the code was written for: the recorder's task or the last user message")
    outcome: Outcome = Field(description="ok, error (also a failed console.assert), timeout; unknown: not told")
    stdout: str = Field(description="Standard output, chunks joined, ANSI codes removed")
    stderr: str = Field(description="Standard error, chunks joined, ANSI codes removed")
    result_text: str | None = Field(description="Text of the results, joined by line feeds")
    error_name: str | None = Field(description="Exception class")
    error_value: str | None = Field(description="Exception message")
    traceback: str | None = Field(description="Traceback, ANSI codes removed")
    execution_count: str | None = Field(description="The kernel's counter; text, since it may exceed 64 bits")
    duration_ms: float | None = Field(description="Measured duration in milliseconds", ge=0)
    timeout_s: float | None = Field(description="Time limit in seconds", ge=0)
    domains: list[str] = Field(description="Domains, the primary first; empty when none fits")
    confidence: float = Field(description="Confidence of the primary domain, 0..1", ge=0, le=1)
    evidence: str = Field(description="What the domain was concluded from")
    quality: float = Field(description="Quality score, 0..1 (executions/quality.py)", ge=0, le=1)
    flags: list[str] = Field(description="Oddities that were mended while reading, sorted")
    secrets: int = Field(description="Number of secrets replaced by placeholders", ge=0)
    licence: str | None = Field(description="Licence of the code, where the recorder was told")
    source: str | None = Field(description="Where the code comes from, where the recorder was told")
    bullet_ids: list[str] = Field(
        description="Playbook bullets that its agent worked with, where the recorder was told"
    )
    record_digest: str = Field(description="SHA-256 of the redacted record, whatever its file and formatting")
    source_file: str = Field(description="File, relative to the experience folder")
    source_line: int = Field(description="Line in that file, from 1", ge=1)
    source_offset: int = Field(description="Byte offset of the line in the decompressed file", ge=0)


class Quarantined(Record):
    """A line or file that is no execution, with the reason."""

    schema_name: ClassVar[str] = "Quarantined"
    schema_version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]] = ("quarantine_id",)

    quarantine_id: str = Field(description="Digest of file, line and content")
    file: str = Field(description="File, relative to the experience folder")
    line: int = Field(description="Line from 1; 0 means the whole file", ge=0)
    offset: int = Field(description="Byte offset in the decompressed file", ge=0)
    reason: str = Field(description="Class of the fault, such as missing:code or invalid_json")
    detail: str = Field(description="What was expected and what was found")
    text: str = Field(description="The redacted text, at most 64 KiB")
    digest: str = Field(description="Keyed digest of the original bytes")


class LogFile(Record):
    """One file of the logs folder, with the counts of its lines."""

    schema_name: ClassVar[str] = "LogFile"
    schema_version: ClassVar[int] = 2
    key: ClassVar[tuple[str, ...]] = ("path",)

    path: str = Field(description="File, relative to the experience folder")
    kind: Literal["executions", "other"] = Field(description="Whether its content looks like an execution log")
    bytes: int = Field(description="Size on disk", ge=0)
    digest: str = Field(description="SHA-256 of the file's first MiB, chained with each further MiB (lines.Chain)")
    lines: int = Field(description="Lines read (of execution logs)", ge=0)
    kept: int = Field(description="Executions taken from this file", ge=0)
    quarantined: int = Field(description="Lines, or the file itself, put in quarantine", ge=0)
    duplicates: int = Field(description="Lines whose execution was taken from another place", ge=0)
    ignored: int = Field(description="Blank lines; 1 for a file that is no execution log", ge=0)
    pending: int = Field(description="Last lines that wait for the rest of their text", ge=0)
    forgotten: int = Field(description="Lines whose record was forgotten (`capibara forget`)", ge=0)


class Pattern(Record):
    """An idiom that occurs in executed code, counted once per canonical form."""

    schema_name: ClassVar[str] = "Pattern"
    schema_version: ClassVar[int] = 2
    key: ClassVar[tuple[str, ...]] = ("pattern_id",)

    pattern_id: str = Field(description="Digest of kind, language and canonical form")
    kind: PatternKind = Field(description="What sort of idiom it is")
    name: str = Field(description="Name of the function, class, table or call, or of the idiom")
    language: str = Field(description="Language of the code")
    code: str = Field(description="Its first successful occurrence, as written")
    canonical: str = Field(description="Digest of the form with names replaced by their order of appearance")
    frequency: int = Field(description="Executions that contain it", ge=1)
    successes: int = Field(description="Those of them that ended without error", ge=0)
    success_rate: float = Field(description="successes / frequency", ge=0, le=1)
    languages: list[str] = Field(description="Languages of the executions that contain it (SQL runs in Python, too)")
    language_success_rates: list[float] = Field(description="Success rate in each of `languages`")
    execution_ids: list[str] = Field(description="Executions that contain it, sorted")
    sandbox_ids: list[str] = Field(description="Their sandboxes, sorted")
    context: str = Field(description="Where it was seen: task, inputs and result or error")
    explanation: str = Field(description="What it is: signature, first sentence of its docstring, behaviour seen")


class RepairPair(Record):
    """A failing execution and the later execution of the same session that mended it."""

    schema_name: ClassVar[str] = "RepairPair"
    schema_version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]] = ("pair_id",)

    pair_id: str = Field(description="Digest of both execution ids")
    domains: list[str] = Field(description="Domain of the fixed execution, then debug")
    language: str = Field(description="Language of both")
    sandbox_id: str = Field(description="Sandbox of both")
    failing_execution_id: str = Field(description="The execution that failed")
    fixed_execution_id: str = Field(description="The later execution that mended it")
    failing_code: str = Field(description="Code that failed")
    fixed_code: str = Field(description="Code that worked")
    task: str | None = Field(description="What the code was written for")
    error_name: str | None = Field(description="Exception class of the failure; TimeoutException for a timeout")
    error_value: str | None = Field(description="Exception message")
    traceback: str | None = Field(description="Traceback of the failure")
    diff: str = Field(description="Unified diff from failing to fixed code")
    distance: int = Field(description="Token edit distance of the two", ge=1)
    similarity: float = Field(description="1 - distance / tokens of the longer code", ge=0, le=1)
