"""Replaces secrets by placeholders such as `<E2B_API_KEY:1>`, equal for equal secrets within a sandbox."""

import hashlib
import hmac
import os
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from capibara_assets.executions.formats.envelope_reader import Recorded, strip_ansi
from capibara_assets.executions.parsing import python_tree
from capibara_assets.executions.secrets.characters import entropy
from capibara_assets.executions.secrets.personal import PERSONAL, personal_rules
from capibara_assets.executions.secrets.plausibility import signed_password
from capibara_assets.executions.secrets.prefilter import may_hold_secrets, narrowed_rules
from capibara_assets.executions.secrets.rules import Narrowed, Secret, find_secrets, masked, provider_rules

TEXT_LIMIT = 64 << 10  # bytes of quarantined text that are kept
_SEARCHED = 4 * TEXT_LIMIT  # bytes of a damaged text that are searched for secrets
_CUT = 32 << 10  # characters before the end of what is searched; no secret that is cut there is longer
_OUTPUT = ("stdout", "stderr", "result_text", "error_name", "error_value", "traceback")
TEXTS = ("code", "task", "source", *_OUTPUT)
_KEY = "CAPIBARA_DIGEST_KEY"
DEFAULT_KEY = b"capibara-assets"  # where a deployment has set none
PLACEHOLDER = r"<([A-Z][A-Z0-9_]{2,40}):(\d{1,9})>"

#: A source such as `capibara-fleet`, in which no rule finds anything; but it holds an anchor (`api`).
_PLAIN_NAME = re.compile(r"[a-z]{2,20}(?:[-_][a-z]{2,20})?")

SessionSecrets = dict[tuple[int, str], list[Secret]]  # (position in the session, field) -> secrets


def redact_text(text: str) -> str:
    """`text` without secrets; placeholders are numbered by appearance."""
    return _redacted_until(text, len(text))


def _redacted_until(text: str, end: int) -> str:
    """`text` before the character `end`, with a secret that reaches over it, redacted; the rest is only searched."""
    secrets = find_secrets(text)
    secrets = _with_known(text, secrets, _known((text[s.start : s.end], s.kind) for s in secrets))
    secrets = [secret for secret in secrets if secret.start < end]
    numbers = _Numbers()
    marks = [numbers.placeholder(s.kind, text[s.start : s.end]) for s in secrets]
    return _replaced(text[: max([end, *(s.end for s in secrets[-1:])])], secrets, marks)


def redact_name(name: str) -> str:
    """A name with its secrets replaced, so that different ones stay different: `GITHUB_TOKEN-` and a keyed digest."""
    secrets = find_secrets(name)
    marks = [f"{s.kind}-{keyed_digest(name[s.start : s.end].encode('utf-8'))[:8]}" for s in secrets]
    return _replaced(name, secrets, marks)


def redacted_names(names: Sequence[str]) -> dict[str, str]:
    """The names that hold secrets, and what each becomes."""
    suspects = [name for name, held in zip(names, may_hold_secrets(names), strict=True) if held]
    return {name: plain for name in suspects if (plain := redact_name(name)) != name}


def quarantine_text(data: bytes) -> str:
    """Damaged bytes as redacted text of at most 64 KiB. Redacts before it cuts: half a key would not be recognised.

    Of a long text only the head is searched, so that what is refused anyway costs no more the longer it is; the end
    of the head, where a secret may be cut, is left out.
    """
    text = strip_ansi(data[:_SEARCHED].decode("utf-8", "replace"))
    text = _redacted_until(text, len(text) if len(data) <= _SEARCHED else max(0, len(text) - _CUT))
    return text.encode("utf-8")[:TEXT_LIMIT].decode("utf-8", "ignore")


def keyed_digest(data: bytes) -> str:
    """HMAC-SHA-256 under the deployment's key: recognises equal bytes, which cannot be guessed without the key."""
    return hmac.new(digest_key(), data, hashlib.sha256).hexdigest()


def digest_key() -> bytes:
    """The key of keyed digests: CAPIBARA_DIGEST_KEY, at most 64 bytes of it."""
    own = os.environ.get(_KEY)
    return DEFAULT_KEY if own is None else own.encode("utf-8")[:64]


def redact_sessions(
    sessions: Sequence[Sequence[Recorded]],
    also: Sequence[str] = (),
    suspects: Iterable[bool] | None = None,
    found: set[tuple[str, str]] | None = None,
) -> list[list[int]]:
    """Redacts the executions of several sandboxes in place; returns the number of secrets in each, in their order.

    A prefilter rules out nearly all text of a large batch: give it thousands of executions at a time.
    Placeholders are numbered by (timestamp, execution id), whatever the order within a session.

    Args:
        also: personal data to redact as well: "email", "ip".
        suspects: for each execution whether it may hold a secret (`may_hold_secrets`), where that is known already.
        found: receives the (value, kind) of what is replaced.
    """
    every = find_in_sessions(sessions, also, suspects)
    if found is not None:
        for session, secrets in zip(sessions, every, strict=True):
            found.update(_values(session, secrets))
    return [
        _replace_all(session, secrets) if secrets else [0] * len(session)
        for session, secrets in zip(sessions, every, strict=True)
    ]


def find_in_sessions(
    sessions: Sequence[Sequence[Recorded]], also: Sequence[str] = (), suspects: Iterable[bool] | None = None
) -> list[SessionSecrets]:
    """For each sandbox the secrets in its executions, by (position in the session, field), left to right.

    A value that was recognised once is a secret everywhere in the sandbox, also where it stands alone.
    """
    if suspects is None:
        suspects = may_hold_secrets([_joined(record) for session in sessions for record in session], also)
    marks = iter(suspects)
    places = [[i for i in range(len(session)) if next(marks)] for session in sessions]
    narrowed = narrowed_rules(also)
    return [
        _find(session, marked, narrowed) if marked else {} for session, marked in zip(sessions, places, strict=True)
    ]


def _joined(record: Recorded) -> str:
    texts = [value for name in TEXTS if (value := getattr(record, name))]
    if record.source and _PLAIN_NAME.fullmatch(record.source):
        texts.remove(record.source)
    return "\n".join(texts)


def _find(session: Sequence[Recorded], suspects: Iterable[int], narrowed: Narrowed) -> SessionSecrets:
    """The secrets of one sandbox; `suspects` are the executions in which a rule could find something."""
    seen = {(i, name): secrets for i in suspects for name, secrets in _scan(session[i], narrowed)}
    if not seen:
        return {}
    known = _known_values(session, seen)
    spread: SessionSecrets = {}
    for i, record in enumerate(session):
        for name in TEXTS:
            text: str | None = getattr(record, name)
            if text and (secrets := _with_known(text, seen.get((i, name), []), known)):
                spread[i, name] = secrets
    return spread


def _replace_all(session: Sequence[Recorded], secrets_at: SessionSecrets) -> list[int]:
    numbers, counts = _Numbers(), [0] * len(session)
    for i in sorted(range(len(session)), key=lambda i: (session[i].timestamp, session[i].execution_id)):
        record = session[i]
        for name in TEXTS:
            if (secrets := secrets_at.get((i, name))) is None:
                continue
            text = getattr(record, name)
            marks = [numbers.placeholder(s.kind, text[s.start : s.end]) for s in secrets]
            replaced = _replaced(text, secrets, marks)
            if name == "code" and record.language == "python" and python_tree(text) and not python_tree(replaced):
                # a key that stands bare in the code, as a name would: a name takes its place
                replaced = _replaced(text, secrets, [mark.strip("<>").replace(":", "_") for mark in marks])
            setattr(record, name, replaced)
            counts[i] += len(secrets)
    return counts


def _scan(record: Recorded, narrowed: Narrowed) -> Iterable[tuple[str, list[Secret]]]:
    for name in TEXTS:
        text, code = getattr(record, name), record.code if name in _OUTPUT else None
        if text and (secrets := find_secrets(text, code, narrowed)):
            yield name, secrets


def _known_values(session: Sequence[Recorded], secrets_at: SessionSecrets) -> dict[str, str]:
    return _known(_values(session, secrets_at))


def _values(session: Sequence[Recorded], secrets_at: SessionSecrets) -> Iterator[tuple[str, str]]:
    for (i, name), secrets in secrets_at.items():
        text = getattr(session[i], name)
        yield from ((text[secret.start : secret.end], secret.kind) for secret in secrets)


def _known(found: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Value -> kind of the secrets that are long and random enough to be replaced wherever they stand."""
    known: dict[str, str] = {}
    for value, kind in found:
        telling = known.get(value, "SECRET") == "SECRET"  # of two names for one value the telling one stays
        if telling and ((len(value) >= 12 and entropy(value) >= 3) or signed_password(value)):
            known[value] = kind
    return known


def _with_known(text: str, secrets: list[Secret], known: dict[str, str]) -> list[Secret]:
    """`secrets`, every other place of a known value, and what these lay bare, left to right."""
    merged = [Secret(s.start, s.end, known.get(text[s.start : s.end], s.kind)) for s in secrets]
    starts = [secret.start for secret in merged]
    for value, kind in known.items():
        start = text.find(value)
        while start >= 0:
            end = start + len(value)
            place = bisect_left(starts, end)  # of what begins behind it; what stands before that may reach into it
            if place == 0 or merged[place - 1].end <= start:
                merged.insert(place, Secret(start, end, kind))
                starts.insert(place, start)
            start = text.find(value, end)
    if len(merged) > len(secrets):  # a key that one of these places adjoins has an end only now
        merged = sorted([*merged, *find_secrets(masked(text, merged))], key=lambda s: s.start)
    return merged


def redaction_report(executions: pl.DataFrame | pl.LazyFrame) -> pl.DataFrame:
    """Counts replaced secrets: a row per kind with its places, distinct values and sandboxes.

    It is read off the placeholders of the redacted table, so it cannot hold a secret. (A key that stood bare in
    Python code has a name in its place and is only in the table's count.)

    Args:
        executions: the Execution table, or its columns of text, `sandbox_id` and `secrets`.
    """
    kinds = sorted({rule.kind for rule in (*provider_rules(), *personal_rules(PERSONAL))})
    marked = executions.lazy().filter(pl.col("secrets") > 0).select("sandbox_id", *TEXTS).collect(engine="streaming")
    marks = pl.concat([marked.select("sandbox_id", text=pl.col(name)) for name in TEXTS])
    return (
        marks.select("sandbox_id", mark=pl.col("text").str.extract_all(PLACEHOLDER))
        .explode("mark", empty_as_null=False, keep_nulls=False)
        .select("sandbox_id", "mark", kind=pl.col("mark").str.extract(PLACEHOLDER, 1))
        .filter(pl.col("kind").is_in(kinds))
        .group_by("kind")
        .agg(
            places=pl.len(),
            values=pl.struct("sandbox_id", "mark").n_unique(),
            sandboxes=pl.col("sandbox_id").n_unique(),
        )
        .sort("kind")
    )


class _Numbers:
    """Numbers the distinct values of each kind in order of appearance."""

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
