"""ACE text: `## SECTION` headers and one bullet a line, `[id] helpful=N harmful=M :: content` or `[id] content`.

Source of the form: ace-agent/ace, `playbook_utils.py`; the form without counters: ace-agent/ace-appworld. A line that
is neither header nor bullet continues the bullet above it; two blanks of indent are removed, as `write.py` adds them.
"""

import re

from capibara_assets.playbooks.formats.parsed import MOST_DIGITS, ParsedPlaybook, RawBullet, UnfitEntry, tidy, undamaged

_COUNTED = re.compile(r"(?:- )?\[(?P<id>[^\]]*)\]\s*(?P<rest>helpful=.*)")
_COUNTERS = re.compile(r"helpful=(?P<helpful>\S*)\s+harmful=(?P<harmful>\S*)\s*::(?P<content>.*)")
_PLAIN = re.compile(r"(?:- )?\[(?P<id>[A-Za-z][A-Za-z_]*-\d+)\](?P<content>\s.*|$)")
_UNBRACKETED = re.compile(r"\S+\s+helpful=\S*\s+harmful=\S*(\s*::|\s*$)")
_WHOLE = re.compile(rf"[0-9]{{1,{MOST_DIGITS}}}")


def looks_like_ace_text(text: str) -> bool:
    """Whether some line is a bullet of this form, or every line is a header (a playbook before its first lesson)."""
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and all(line.startswith("##") for line in lines):
        return True
    headed = any(line.startswith("## ") for line in lines)
    return any(_COUNTED.match(line) or (headed and _PLAIN.match(line)) for line in lines)


def read_ace_text(text: str) -> ParsedPlaybook:
    """Reads a playbook in ACE text.

    Reasons for rejection: counter, format, empty_id, empty_content, conflicting_bullet_id, orphan_continuation,
    invalid_utf8.
    """
    parsed = ParsedPlaybook()
    section = ""
    owner: RawBullet | None = None  # the bullet that the next lines continue
    more: list[str] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        starts = _COUNTED.match(line) or _PLAIN.match(line) or _UNBRACKETED.match(line)
        if not (starts or line.startswith("##")):
            if owner is not None:
                more.append(line)
            elif line.strip():
                parsed.reject("orphan_continuation", "the line continues no bullet that was kept", line, number)
            continue
        _keep(parsed, owner, more)
        owner, more = None, []
        if line.startswith("##"):
            section = line.lstrip("#").strip() or section
            continue
        try:
            owner = _bullet(undamaged(line), section, number)
        except UnfitEntry as unfit:
            parsed.reject(unfit.reason, unfit.detail, line, number)
    _keep(parsed, owner, more)
    return parsed


def _keep(parsed: ParsedPlaybook, bullet: RawBullet | None, more: list[str]) -> None:
    """Adds a bullet with the lines that continue it."""
    if bullet is not None:
        lines = [bullet.content, *(line.removeprefix("  ") for line in more)]
        parsed.add(bullet.with_content(tidy("\n".join(lines))), "\n".join([bullet.content, *more]).rstrip())


def _bullet(line: str, section: str, number: int) -> RawBullet:
    """The bullet on one line. Raises UnfitEntry."""
    helpful = harmful = 0
    if counted := _COUNTED.match(line):
        local_id, counters = counted["id"].strip(), _COUNTERS.match(counted["rest"])
        if counters is None:
            raise UnfitEntry("format", "expected [id] helpful=N harmful=M :: content")
        for name in ("helpful", "harmful"):
            if not _WHOLE.fullmatch(counters[name]):
                raise UnfitEntry("counter", f"{name} is {counters[name]!r}, expected a whole number from 0")
        helpful, harmful, content = int(counters["helpful"]), int(counters["harmful"]), counters["content"]
    elif plain := _PLAIN.match(line):
        local_id, content = plain["id"], plain["content"]
    else:
        raise UnfitEntry("format", "expected [id] helpful=N harmful=M :: content, found no brackets")
    if not local_id:
        raise UnfitEntry("empty_id", "the brackets hold no id")
    if not tidy(content):
        raise UnfitEntry("empty_content", "nothing after the id and counters")
    return RawBullet(local_id, tidy(section), content, helpful=helpful, harmful=harmful, line=number)
