"""Replaces secrets by typed placeholders: `<E2B_API_KEY:1>`, the same secret the same placeholder within a sandbox."""

import ast
import hashlib
import hmac
import os
from collections.abc import Iterable, Sequence

from capibara_assets.executions.readers import Recorded, strip_ansi
from capibara_assets.executions.secret_gate import may_hold_secrets
from capibara_assets.executions.secret_rules import Rule, Secret, entropy, find_secrets, rules_for

TEXT_LIMIT = 64 << 10  # characters of quarantined text that are kept
_OUTPUT = ("stdout", "stderr", "result_text", "error_name", "error_value", "traceback")
_FIELDS = ("code", "task", "source", *_OUTPUT)
_KEY = "CAPIBARA_DIGEST_KEY"


def redact_text(text: str) -> str:
    """`text` without secrets; placeholders are numbered by appearance."""
    secrets = find_secrets(text)
    numbers = _Numbers()
    return _replaced(text, secrets, [numbers.placeholder(s.kind, text[s.start : s.end]) for s in secrets])


def quarantine_text(data: bytes) -> str:
    """Damaged bytes as redacted text of at most 64 KiB. Redacts before it cuts: half a key is a key's half."""
    text = redact_text(strip_ansi(data.decode("utf-8", "replace")))
    return text.encode("utf-8")[:TEXT_LIMIT].decode("utf-8", "ignore")


def keyed_digest(data: bytes) -> str:
    """HMAC-SHA-256 under the deployment's key (CAPIBARA_DIGEST_KEY): equal bytes are found again, but not guessed."""
    return hmac.new(digest_key(), data, hashlib.sha256).hexdigest()


def digest_key() -> bytes:
    """The key of keyed digests: CAPIBARA_DIGEST_KEY, at most 64 bytes of it."""
    return os.environ.get(_KEY, "capibara-assets").encode("utf-8")[:64]


def redact_sessions(sessions: Sequence[Sequence[Recorded]]) -> list[list[int]]:
    """Redacts the executions of several sandboxes in place and returns how many secrets each held, in their order.

    Nearly all text holds nothing that could be a secret, which one pass over the whole batch finds out: give it
    thousands of executions at a time.
    """
    texts = [_joined(record) for session in sessions for record in session]
    suspects = iter(may_hold_secrets(texts))
    counts = []
    for session in sessions:
        marked = [next(suspects) for _ in session]
        counts.append(_redact(session, marked) if any(marked) else [0] * len(session))
    return counts


def redact_session(session: Sequence[Recorded]) -> list[int]:
    """As `redact_sessions`, of one sandbox."""
    return redact_sessions([session])[0]


def _joined(record: Recorded) -> str:
    return "\n".join([value for name in _FIELDS if (value := getattr(record, name))])


def _redact(session: Sequence[Recorded], suspect: Sequence[bool]) -> list[int]:
    """Redacts one sandbox in place; `suspect` says in which executions a rule could find something.

    Numbers follow (timestamp, execution id), whatever the order of `session`. A value that was recognised once is
    replaced everywhere in the sandbox, also where it stands alone.
    """
    order = sorted(range(len(session)), key=lambda i: (session[i].timestamp, session[i].execution_id))
    rules = rules_for("\n".join(_joined(record) for record, scan in zip(session, suspect, strict=True) if scan))
    found = {(i, name): secrets for i in order if suspect[i] for name, secrets in _scan(session[i], rules)}
    if not found:
        return [0] * len(session)
    known = _known_values(session, found)
    numbers, counts = _Numbers(), [0] * len(session)
    for i in order:
        record = session[i]
        for name in _FIELDS:
            text: str | None = getattr(record, name)
            if not text:
                continue
            secrets = _with_known(text, found.get((i, name), []), known)
            if not secrets:
                continue
            marks = [numbers.placeholder(s.kind, text[s.start : s.end]) for s in secrets]
            replaced = _replaced(text, secrets, marks)
            if name == "code" and record.language == "python" and _parses(text) and not _parses(replaced):
                # a key that stands bare in the code, as a name would: a name takes its place
                replaced = _replaced(text, secrets, [mark.strip("<>").replace(":", "_") for mark in marks])
            setattr(record, name, replaced)
            counts[i] += len(secrets)
    return counts


def _scan(record: Recorded, rules: Sequence[Rule]) -> Iterable[tuple[str, list[Secret]]]:
    for name in _FIELDS:
        text = getattr(record, name)
        if text and (secrets := find_secrets(text, record.code if name in _OUTPUT else None, rules)):
            yield name, secrets


def _known_values(session: Sequence[Recorded], found: dict[tuple[int, str], list[Secret]]) -> dict[str, str]:
    """Value -> kind of the secrets that are long and random enough to be replaced wherever they stand."""
    known: dict[str, str] = {}
    for (i, name), secrets in found.items():
        for secret in secrets:
            value = getattr(session[i], name)[secret.start : secret.end]
            telling = known.get(value, "SECRET") == "SECRET"  # of two names for one value the telling one stays
            if telling and len(value) >= 12 and entropy(value) >= 3:
                known[value] = secret.kind
    return known


def _with_known(text: str, secrets: list[Secret], known: dict[str, str]) -> list[Secret]:
    """`secrets` and every other place of a known value, left to right."""
    merged = [Secret(s.start, s.end, known.get(text[s.start : s.end], s.kind)) for s in secrets]
    for value, kind in known.items():
        start = text.find(value)
        while start >= 0:
            end = start + len(value)
            if all(end <= s.start or start >= s.end for s in merged):
                merged.append(Secret(start, end, kind))
            start = text.find(value, end)
    return sorted(merged, key=lambda s: s.start)


class _Numbers:
    """Numbers the values of each kind in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, int]] = {}

    def placeholder(self, kind: str, value: str) -> str:
        values = self._numbers.setdefault(kind, {})
        return f"<{kind}:{values.setdefault(value, len(values) + 1)}>"


def _replaced(text: str, secrets: Sequence[Secret], marks: Sequence[str]) -> str:
    parts, last = [], 0
    for secret, mark in zip(secrets, marks, strict=True):
        parts += [text[last : secret.start], mark]
        last = secret.end
    return "".join([*parts, text[last:]])


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
