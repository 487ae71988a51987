"""What a call of one of Codex's tools means: an edit, or a command and what its answer says about it.

A command is text (`cmd`, `command`) or a list of words (`["bash", "-lc", "ls"]`); its arguments are JSON inside JSON.
An answer is a header up to a line "Output:" and the output, or JSON text of older versions
(`{"output", "metadata": {"exit_code"}}`), or an error alone where nothing started. A header without an exit code is
that of a command that goes on: the code comes with the answer to a later `write_stdin`.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

from capibara_assets.executions.formats.agents.fields import of_json
from capibara_assets.executions.formats.agents.runs import Edit, texts
from capibara_assets.executions.formats.agents.tools.calls import Call
from capibara_assets.executions.formats.strict_json import Fault

COMMANDS = {"exec_command", "shell", "shell_command", "container.exec", "local_shell", "unified_exec"}
POLLS = {"write_stdin": "session_id", "wait": "cell_id"}  # looks at a command that goes on: tool, and its id

_HEADER = re.compile(
    r"Chunk ID: .*|Original token count: \d+|Total output lines: \d+|Warning: .*|aborted by user|"
    r"Wall time:? (?P<wall>\d{1,9}(?:\.\d{1,9})?) seconds|(?:Process exited with code|Exit code:) (?P<code>-?\d{1,10})|"
    r"(?:Process running with session ID|Script running with cell ID) (?P<on>\S+)|"
    r"Script (?P<script>completed|failed|terminated)"
)
_STARTS = re.compile(r"^(?:Chunk ID: |Wall time: |Exit code: )", re.MULTILINE)
_ERROR_CODE = re.compile(r"exit[_ ]code: (-?\d{1,10})")
_REFUSED = re.compile(
    r"\bRejected\(|\brejected by (?:the )?user|\b(?:command|patch) rejected|\brejected: |\breject command|"
    r"\bapproval (?:policy|required)|blocked by (?:policy|\w+ hook)|\bdenied by (?:the )?user",
    re.IGNORECASE,
)
_INVALID = re.compile(r"failed to parse|unsupported (?:call|custom tool)|missing field|invalid (?:type|arguments)")
_UNSTARTED = re.compile(r"exec(?:_command)? failed|failed to (?:start|spawn)|unable to start|execution error|aborted$")
_TIMED_OUT = re.compile(r"command timed out after \d+")
_FILE = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_HEREDOC = re.compile(
    r"\s*(?:cd [^\n;|]+ && )?(?:apply_?patch)\s*<<\s*(['\"]?)(\w+)\1\n(?P<patch>.*)\n\2\s*", re.DOTALL
)
_POWERSHELL = {"powershell", "powershell.exe", "pwsh", "pwsh.exe"}
_CMD = {"cmd", "cmd.exe"}
_SHELL = re.compile(r"<environment_context>.*?<shell>\s*([^<\s]{1,100})\s*</shell>", re.DOTALL)


class Command(NamedTuple):
    """Code and the language of the program that runs it."""

    language: str
    code: str


class CodexAnswer(NamedTuple):
    """What an answer to a call says; `goes_on`: the id under which the command is still running."""

    output: str
    exit_code: int | None = None
    success: bool | None = None
    not_run: str | None = None
    goes_on: str | None = None
    duration_ms: float | None = None

    def write(self, call: Call) -> None:
        """Write it into its call."""
        call.not_run, call.success, call.exit_code = self.not_run, self.success, self.exit_code
        call.output = self.output
        call.duration_ms = None if self.goes_on else self.duration_ms
        call.timed_out = _TIMED_OUT.match(self.output) is not None


def arguments_of(text: Any) -> Any:
    """A call's arguments: the object in its JSON text, or as they are where they are none."""
    return of_json(text, text) if isinstance(text, str) else text


def shell_of(said: str) -> str | None:
    """The shell that Codex, writing as the user, says it has."""
    told = _SHELL.search(said)
    return told[1] if told else None


def in_shell(arguments: Any, shell: str | None) -> Any:
    """The arguments of a command with the shell that it has unless it names its own."""
    text = isinstance(arguments, dict) and isinstance(arguments.get("cmd", arguments.get("command")), str)
    return {"shell": shell, **arguments} if text and shell is not None else arguments


def command_of(arguments: Any) -> Command | None:
    """The command in a call's arguments; None where there is none."""
    if not isinstance(arguments, dict):
        return None
    command = arguments.get("cmd", arguments.get("command"))
    if isinstance(command, str):
        return Command("powershell" if _program(str(arguments.get("shell", ""))) in _POWERSHELL else "bash", command)
    if not isinstance(command, list) or not command or not all(isinstance(word, str) for word in command):
        return None
    return _of_words(command)


def typed_command(text: str) -> Command | None:
    """The command in a text of the words that were run, such as `bash -lc 'ls'`; in any other text, the text."""
    try:
        words = shlex.split(text)
    except ValueError:  # no shell's words: it stands as it was written
        words = []
    wrapped = len(words) == 3 and words[1] in ("-c", "-lc", "-cl", "-Command")
    if len(words) > 2:  # on Windows there may be more before the command
        program, told = _program(words[0]), (words[1].lower(), words[-2].lower())
        wrapped |= (program in _POWERSHELL and told[1] in ("-command", "-c")) or (program in _CMD and told[0] == "/c")
    return command_of({"command": words if wrapped else text})


def patch_of(name: str, arguments: Any) -> str | None:
    """The patch that a call applies; None: it is no such call.

    `apply_patch` given to a shell is never run by the shell: Codex applies the patch itself.
    """
    if name == "apply_patch":
        patch = arguments.get("input", arguments.get("patch")) if isinstance(arguments, dict) else arguments
        return patch if isinstance(patch, str) else ""
    command = arguments.get("cmd", arguments.get("command")) if isinstance(arguments, dict) else None
    if isinstance(command, list) and len(command) == 2 and command[0] in ("apply_patch", "applypatch"):
        return str(command[1])
    found = command_of(arguments)
    heredoc = _HEREDOC.fullmatch(found.code) if found and "*** Begin Patch" in found.code else None
    return heredoc["patch"] if heredoc else None


def edits_of(session: str, patch: str) -> Iterator[Edit | Fault]:
    """One edit for each file that a patch changes."""
    files = list(_FILE.finditer(patch))
    if not files:
        yield Fault("type:patch", "a patch that was applied names no file", patch)
        return
    ends = [file.start() for file in files[1:]] + [len(patch)]
    for file, end in zip(files, ends, strict=True):
        yield Edit(session, file[1].strip(), patch[file.start() : end].removesuffix("*** End Patch").rstrip("\n"))


def answer_of(output: Any) -> CodexAnswer:
    """What the output of a call says."""
    told = output if isinstance(output, dict) else None
    text = texts(told.get("content", told.get("text", told.get("output")))) if told else texts(output)
    answer = _of_json(text) or _of_header(text) or _of_error(text)
    if told and isinstance(told.get("success"), bool) and answer.success is None and not answer.goes_on:
        return answer._replace(success=told["success"])
    return answer


def _program(path: str) -> str:
    """The name of a program, on Windows too."""
    return PurePath(path.replace("\\", "/")).name.lower()


def _of_words(words: list[str]) -> Command:
    program = _program(words[0])
    if program in _POWERSHELL and len(words) > 2:
        return Command("powershell", words[-1])
    if program in _CMD and len(words) > 2 and words[1].lower() == "/c":
        return Command("bash", " ".join(words[2:]))
    if program in ("bash", "sh", "zsh", "dash", "bash.exe") and len(words) == 3 and words[1] in ("-c", "-lc", "-cl"):
        return Command("bash", words[2])
    return Command("bash", shlex.join(words))


def _of_json(text: str) -> CodexAnswer | None:
    value = arguments_of(text) if text.startswith("{") else None
    if not isinstance(value, dict) or not isinstance(value.get("output"), str) or "metadata" not in value:
        return None
    meta = value["metadata"] if isinstance(value["metadata"], dict) else {}
    code, seconds = meta.get("exit_code"), meta.get("duration_seconds")
    duration = seconds * 1000 if isinstance(seconds, int | float) and abs(seconds) < 1e9 else None
    if not meta:  # what the user, or the rules, said instead of running it
        return CodexAnswer(value["output"], not_run="refused")
    if isinstance(code, bool) or not isinstance(code, int):
        return _of_error(value["output"])
    return CodexAnswer(value["output"], code, code == 0, duration_ms=duration)


def _of_header(text: str) -> CodexAnswer | None:
    head, found, body = text.partition("\nOutput:\n")
    if not found:
        head = text.removesuffix("\nOutput:")
    if head.startswith("Command: ") and (start := _STARTS.search(head)):
        head = head[start.start() :]
    lines = [_HEADER.fullmatch(line) for line in head.rstrip("\n").split("\n")]
    told: dict[str, str] = {}
    for line in lines:
        if line is None:
            return None
        told.update({name: value for name, value in line.groupdict().items() if value})
    if not told:
        return None
    code = int(told["code"]) if "code" in told else None
    success = code == 0 if code is not None else {"completed": True, "failed": False}.get(told.get("script", ""))
    duration = float(told["wall"]) * 1000 if "wall" in told and "aborted by user" not in head else None
    return CodexAnswer(body, code, success, goes_on=None if code is not None else told.get("on"), duration_ms=duration)


_IN_SANDBOX = "failed in sandbox:"


def _of_error(text: str) -> CodexAnswer:
    """An answer without a header: why nothing ran, or how it was stopped."""
    head = text[:4000].strip()
    if _REFUSED.search(head):
        return CodexAnswer(text, not_run="refused")
    sandboxed = head.startswith(_IN_SANDBOX)
    code = _ERROR_CODE.search(text) if _UNSTARTED.match(head) or sandboxed else None
    if code:
        return CodexAnswer(text, int(code[1]), code[1] == "0")
    if _TIMED_OUT.match(head) or sandboxed:
        return CodexAnswer(text.lstrip().removeprefix(_IN_SANDBOX).removeprefix(" "), success=False)
    if _INVALID.match(head):
        return CodexAnswer(text, not_run="invalid_call")
    return CodexAnswer(text, not_run="not_started" if _UNSTARTED.match(head) else None)
