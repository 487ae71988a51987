"""The lines of a session that was exported as Markdown, read once from first to last: who said and called what."""

import json
import re
from typing import Any, NamedTuple

import yaml

from capibara_assets.deployment.yaml_text import holds_at_most, load_yaml
from capibara_assets.executions.formats.agents.fields import of_json, record
from capibara_assets.executions.formats.agents.general.markdown_heads import (
    FENCE,
    GOES_ON,
    TURN,
    USER,
    Head,
    begins_output,
    heads_of,
    input_begins,
    plain,
)
from capibara_assets.executions.formats.agents.general.markdown_pairs import Called, Output, pair
from capibara_assets.executions.formats.agents.tools.shell_frames import read_fence
from capibara_assets.executions.formats.agents.tools.shell_reports import refused
from capibara_assets.executions.formats.agents.trajectories.tool_calls import parsed

_GIVEN = re.compile(r"(?:tool |function )?(?:inputs?|arguments?|args|parameters?|params|request)\b", re.IGNORECASE)
_KEY = re.compile(r"\s*(?:[-*]\s+)?(?:\*\*|`)(\w+):?(?:\*\*|`):?\s*(?:`(.+)`|(\S.*))?\Z")
_FIELD = re.compile(r"\*\*(\w[\w ]{0,30}):\*\* ?(.*)\Z")
_ENDS = re.compile(r" *(?:`{3}|~{3}|</?details>|---\s*\Z)")  # a command that stands without a fence
_FAILS = {"result:": False}  # of SpecStory, which writes one label below each call
_REFUSED = re.compile(r"\s{0,3}#{1,6}\W*tool error\b", re.IGNORECASE)
_SESSION = re.compile(r"#{1,3} Session\b[^\n]*\Z")
_UUID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")
_UNSAID = re.compile(r"\s*(?:</?\w+>|-{3,}|\*\*[\w ]+:\*\*.*)?\s*\Z")  # no word of a user
_NAMED_WITHIN = 12  # lines below a session's heading in which its id stands
_CUT = "(truncated)"
_CAUTION = "> [!CAUTION]"
_FOLDED_KEYS = {"Bash": "command", "Write": "content"}  # what the block below a call in a `<details>` is
_NAMED_SIDES = {"Before": "old_string", "After": "new_string"}  # above the two blocks of an edit
_ERROR = "Error: "  # that a converter writes before what failed
_INNER = 400  # lines at most between a block's first fence and its last
_OF_ANSWERS = {"output", "content", "stdout", "stderr", "exitCode", "exit_code"}
_YAML = ("yaml", "yml")
_LEAST = 3  # signs of a fence
_DATA = (*_YAML, "json")
_SHELLS = ("bash", "sh", "shell", "zsh", "console", "powershell", "")


class Said(NamedTuple):
    """The lines of a user's turn."""

    lines: list[str]


class Begun(NamedTuple):
    """A session that begins, by its id."""

    session: str


class Export:
    """What stands in the lines of an export, in order.

    Trap: an output may hold fences and headings of its own, so a block ends at the fence behind which the export goes
    on.
    """

    def __init__(self, text: str, names_session: bool) -> None:
        self._lines = text.split("\n")
        self._heads = heads_of(self._lines, names_session)
        self._sessions = self._named_sessions()
        self._turn, self._read = 0, list[Called | Said | Begun]()
        self._call: Called | None = None  # the last
        self._calls, self._outputs = list[Called](), list[Output]()  # of the batch
        self._closed = False  # words stand behind the batch's outputs, or where its outputs would have to stand
        self._heard = False  # the user's turn was since the last call
        self._hears = False  # it is the user's turn
        self._answers = False  # an output follows
        self._failed: bool | None = None  # of a failure, as its label says
        self._labels = False  # outputs stand below labels

    def parts(self) -> list[Called | Said | Begun]:
        """What was said and called, each call with its output."""
        at = 0
        while at < len(self._lines):
            at = self._line(at)
        self._pair()
        shown = [one for one in self._read if isinstance(one, Called) and one.head.form == "input"]
        if not any(one.output is not None or one.unpaired for one in shown):
            for one in shown:  # an export without outputs
                one.unpaired = True
        for part in self._read if self._labels else ():
            if isinstance(part, Called) and part.labelled and part.went_on and part.output is None:
                part.unpaired = True  # of a command that printed nothing these exports show no output
        return self._read

    def _named_sessions(self) -> dict[int, str]:
        """The headings below which another session begins, where there are several."""
        found: dict[int, str] = {}
        for at, line in enumerate(self._lines):
            if line.startswith("#") and _SESSION.match(line):
                named = _UUID.search("\n".join(self._lines[at : at + _NAMED_WITHIN]))
                if named is not None:
                    found[at] = named[0]
        return found if len(set(found.values())) > 1 else {}

    def _line(self, at: int) -> int:
        """Read what begins at a line; the line to go on with."""
        line, call = self._lines[at], None if self._answers else self._call
        bare = call if call is not None and call.turn == self._turn and not call.asks else None
        if at in self._heads:
            return self._begin(at, self._heads[at])
        if at in self._sessions:
            self._pair()
            self._call, self._answers = None, False
            self._read.append(Begun(self._sessions[at]))
        elif (turn := TURN.match(line)) is not None:
            self._turn, self._answers = self._turn + 1, False
            self._leave_unsaid()
            self._hears = turn[1].lower() in USER
            if self._hears:
                self._read.append(Said([]))
                self._heard = True
            else:
                self._close()
        elif _REFUSED.match(line):
            self._close()
            self._pair()
            self._call, self._answers = None, False  # the block below it is of a call that is not shown
        elif begins_output(line):
            self._answers, self._failed = True, self._verdict(line)
            if line.lstrip().startswith("#"):
                return self._plain_output(at + 1)
        elif (fence := FENCE.match(line)) is not None:
            language = fence[3].lower()
            asks = bare is not None and language in _DATA  # neither form has a line that is a fence
            folded = self._call is not None and self._call.head.form == "folded"
            sure = asks or folded or len(fence[2]) > _LEAST  # a longer fence is longer than all that it holds
            end = (self._closing(at) if sure else None) or self._end(at, fence[2])
            if asks and end == len(self._lines):
                return end  # the log itself ends in it
            self._block(language, _dedented(self._lines[at + 1 : end], fence[1]))
            return end if end in self._heads else end + 1
        elif bare is not None and line[:2] == "$ ":
            below = range(at + 1, len(self._lines))
            end = next((n for n in below if n in self._heads or _ENDS.match(self._lines[n])), at + 1)
            bare.given = {"command": "\n".join([line[2:], *self._lines[at + 1 : end]]).rstrip()}
            return end
        elif bare is not None and line[:1] == "`":
            below = range(at, min(at + _INNER, len(self._lines)))
            end = next((n for n in below if self._lines[n].rstrip().endswith("`")), at)
            bare.given = {"command": "\n".join(self._lines[at : end + 1]).strip().strip("`")}
            return end + 1
        elif call is not None and not call.asks and _GIVEN.match(plain(line)):
            call.labelled = True
        elif call is not None and not _GIVEN.match(plain(line)) and (key := _KEY.match(line)):
            if key[2] or key[3]:
                call.given[key[1]] = (key[2] or key[3]).strip("`")
            else:
                call.key = key[1]
        elif self._hears and self._read and isinstance(said := self._read[-1], Said):
            said.lines.append(line)
        elif line.strip() and not GOES_ON.match(line):
            self._close()
        return at + 1

    def _verdict(self, label: str) -> bool | None:
        """What a label says of its call: that it failed, or, where it bears no mark, that it did not."""
        return True if plain(label).lower() == "error:" else _FAILS.get(label.strip().lower())

    def _close(self) -> None:
        """What follows is no output: words stand behind one, or where one would be of JSON behind `Input:`."""
        waits = self._call is not None and self._call.head.form == "input"
        self._closed = self._closed or waits or bool(self._outputs)
        if self._call is not None and not self._heard:
            self._call.went_on = True

    def _leave_unsaid(self) -> None:
        """Forget a user's turn in which nothing is said: results stand in it, or what the export leaves out."""
        if self._read and isinstance(said := self._read[-1], Said) and all(map(_UNSAID.match, said.lines)):
            self._read.pop()

    def _begin(self, at: int, head: Head) -> int:
        """Read a call as far as its form tells where its parts stand; the line to go on with."""
        call, at = Called(head, head.name, self._turn, line=self._lines[at]), at + 1
        if self._call is not None and not self._heard:
            self._call.went_on = True
        if self._outputs or self._heard or self._closed:
            self._pair()
        self._call, self._answers, self._failed, self._heard = call, False, None, False
        self._read.append(call)
        if head.form == "input":
            self._calls.append(call)
            return self._input(at, call)
        if head.form in ("state", "signed"):
            self._call = None
            return self._stated(at, call) if head.form == "state" else self._signed(at, call)
        if head.form == "folded":
            call.key = _FOLDED_KEYS.get(head.name)
            call.given = {"file_path": head.said} if head.said and head.name in ("Edit", "Write") else {}
        self._calls.append(call)
        return at

    def _pair(self) -> None:
        """Give the outputs of the batch that ends to its calls."""
        pair(self._calls, self._outputs)
        self._calls, self._outputs, self._closed = [], [], False

    def _input(self, at: int, call: Called) -> int:
        """Read JSON behind `Input:`, which may have several lines."""
        begin = input_begins(self._lines[at])
        lines = self._lines[at : at + _INNER]
        try:
            value, end = json.JSONDecoder(strict=False).raw_decode("\n".join(lines), begin or 0)
        except (ValueError, RecursionError):
            if any(n in self._heads for n in range(at, at + _INNER)):  # else the log itself ends in it
                call.cut = self._lines[at]
            return at + 1
        call.given = value
        return at + "\n".join(lines).count("\n", 0, end) + 1

    def _stated(self, at: int, call: Called) -> int:
        """Read labelled lines (`**Command:** ls`), and the block below them."""
        named: str | None = None
        while at < len(self._lines) and at not in self._heads:
            line = self._lines[at]
            if (fence := FENCE.match(line)) is not None:
                end = self._end(at, fence[2])
                body = _dedented(self._lines[at + 1 : end], fence[1])
                inner = read_fence(body) if len(fence[2]) > 3 else None
                call.output, at = body if inner is None else inner, end if end in self._heads else end + 1
                break
            if TURN.match(line):
                break
            if (told := _FIELD.match(line)) is not None:
                named = told[1].lower()
                call.given[named] = told[2]
            elif named is not None:
                call.given[named] += f"\n{line}"
            at += 1
        call.given = {key: value.rstrip() for key, value in call.given.items()}
        kind = call.given.pop("tool", "")
        call.name = "Bash" if kind == "execute" else kind  # whose failures these programs state
        if call.head.said in ("completed", "failed"):
            call.failed = call.head.said == "failed"
            call.output = "" if call.output is None else call.output
        else:
            call.output = None
        return at

    def _signed(self, at: int, call: Called) -> int:
        """Read the fence right below, and the output right below that."""
        first = self._closing(at)
        if first is None:
            return at
        body = "\n".join(self._lines[at + 1 : first])
        is_patch = self._lines[at].strip().endswith("diff")
        call.given = {"path": call.head.said or "", "diff": body} if is_patch else {"command": body}
        call.output = "" if any(map(str.strip, self._lines[first + 1 : first + 3])) else None
        at = first + 1
        if (second := self._closing(at)) is not None:
            call.output = "\n".join(self._lines[at + 1 : second])
            call.failed = True if call.output.startswith(_ERROR) else None
            at = second + 1
        elif at < len(self._lines) and self._lines[at].startswith(_CAUTION):
            end = next((n for n in range(at, len(self._lines)) if self._lines[n][:1] != ">"), len(self._lines))
            call.output, call.failed = "\n".join(line[2:] for line in self._lines[at + 1 : end]), True
            at = end
        if call.failed and refused(call.output.removeprefix(_ERROR)):
            call.output = call.output.removeprefix(_ERROR)
        return at

    def _closing(self, at: int) -> int | None:
        """The line of the first fence that closes the one which opens at a line; None: none does."""
        fence = FENCE.match(self._lines[at]) if at < len(self._lines) else None
        if fence is None:
            return None
        below = range(at + 1, min(at + _INNER * 5, len(self._lines)))
        return next((n for n in below if self._lines[n].rstrip() == fence[2]), None)

    def _block(self, language: str, body: str) -> None:
        """Put a block where it belongs: a call's arguments, its output, or nowhere."""
        call, value = self._call, parsed(body)
        if call is None:
            return
        if self._answers or call.turn != self._turn or (call.asks and call.key is None):
            value = _response(body) if body.startswith("[") else value
            is_answer = isinstance(value, dict) and not _OF_ANSWERS.isdisjoint(value)  # else JSON that was printed
            self._answer(value if is_answer else body)
        elif call.key is not None:
            call.given[_NAMED_SIDES.get(call.key, call.key)], call.key = body, None
        elif isinstance(value, dict):
            call.given = value
        elif language in _YAML:
            call.given = _mapping(body)
            call.cut = None if call.given else body
        elif body.lstrip().startswith("{") and (language == "json" or body.rstrip().endswith(_CUT)):
            call.cut = body
        else:
            call.given = {"command" if language in (*_SHELLS, "json") else "code": body.removeprefix("$ ")}

    def _answer(self, output: Any) -> None:
        """Note an output, and whether a label stands above it."""
        labelled, call = self._answers, self._call
        loose = call is not None and call.head.form not in ("input", "folded")
        if call is not None and call.labelled and call.went_on and self._labels:
            loose = False  # an example in the agent's words
        if call is not None and call.head.form == "folded" and isinstance(output, str):
            output = output.replace("\\`", "`")  # so that none of its lines is a fence
        self._leave_unsaid()
        self._labels = self._labels or labelled
        if (labelled or loose) and not self._closed:
            self._outputs.append(Output(output, self._failed, self._turn, labelled))
        self._answers, self._failed = False, None

    def _plain_output(self, at: int) -> int:
        """Read an output without a fence below a heading; nothing is read where a fence follows."""
        first = next((n for n in range(at, len(self._lines)) if self._lines[n].strip()), len(self._lines))
        if first == len(self._lines) or FENCE.match(self._lines[first]):
            return at
        end = next((n for n in range(first, len(self._lines)) if self._is_end(n)), len(self._lines))
        self._answer("\n".join(self._lines[first:end]).strip("\n"))
        return end

    def _is_end(self, at: int) -> bool:
        """Whether an output without a fence ends above a line: a turn, a call, or a rule above either."""
        line = self._lines[at]
        if at in self._heads or TURN.match(line):
            return True
        then = next((n for n in range(at + 1, min(at + 5, len(self._lines))) if self._lines[n].strip()), None)
        goes_on = then is None or then in self._heads or TURN.match(self._lines[then])
        return line.strip() == "---" and bool(goes_on)

    def _end(self, begin: int, mark: str) -> int:
        """The line that closes a block: the first fence behind which the export goes on, else the first, or a call."""
        first = None
        for at in range(begin + 1, len(self._lines)):
            head = self._heads.get(at)
            inside = first is None and head is not None and head.form != "block"  # of an example, as far as is told
            if (head is not None and not inside) or (first is not None and at - first > _INNER):
                return at if first is None else first
            if self._lines[at].strip() == mark:
                first = at if first is None else first
                then = next((line for line in self._lines[at + 1 : at + 5] if line.strip()), "---")
                if GOES_ON.match(then):
                    return at
        return len(self._lines) if first is None else first


def _response(body: str) -> Any:
    """What a function answered, as Gemini's API wraps it; None: the list is of something else."""
    parts = of_json(body)
    part = parts[0] if isinstance(parts, list) and len(parts) == 1 else None
    return record(record(part).get("functionResponse")).get("response")


def _mapping(body: str) -> dict[str, Any]:
    """What a block of YAML names; nothing where it is no mapping, since YAML is no code."""
    try:
        value = load_yaml(body)
    except yaml.YAMLError:
        return {}
    return value if isinstance(value, dict) and holds_at_most(value, len(body)) else {}


def _dedented(lines: list[str], indent: str) -> str:
    """A block's lines without its fence's indent; where some lack it, it is only the first that has it."""
    if not all(line.startswith(indent) for line in lines if line.strip()):
        lines = [line.removeprefix(indent) if n == 0 else line for n, line in enumerate(lines)]
        return "\n".join(lines)
    return "\n".join(line.removeprefix(indent) for line in lines)
