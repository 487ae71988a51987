"""Which format family a file is of, found by looking at its content, and what is in it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from capibara_assets.playbooks.ace_json import DuplicateKey, parse_json, read_bullets_by_id, read_bullets_with_evidence
from capibara_assets.playbooks.ace_text import looks_like_ace_text, read_ace_text
from capibara_assets.playbooks.markdown import looks_like_kayba_markdown, read_kayba_markdown
from capibara_assets.playbooks.parsed import Parsed, Rejected, Unfit
from capibara_assets.playbooks.runs import (
    MANIFEST_NAME,
    AgentManifest,
    RunReport,
    looks_like_run,
    read_manifest,
    read_run,
)

_MARKS = ('"bullets"', '"skills"', '"helpful', '"harmful')
_SHOWN = 65_536


@dataclass(frozen=True)
class Contents:
    """What one file holds. `status` as in `PlaybookFile`; at most one of parsed, manifest, run is there."""

    family: str
    status: Literal["read", "recognised", "ignored", "quarantined"]
    parsed: Parsed | None = None
    manifest: AgentManifest | None = None
    run: RunReport | None = None
    rejected: tuple[Rejected, ...] = ()


_IGNORED = Contents("unknown", "ignored")


def read_contents(data: bytes, name: str, *, own_folder: bool) -> Contents:
    """Find a file's family and read it.

    In a folder of playbooks (`own_folder`) an unreadable file is quarantined; elsewhere only when it bears the marks
    of a playbook, because it may well be an execution log, which is not for this reader.
    """
    if not data.strip():
        return Contents("empty", "read" if own_folder else "ignored")
    if data[:2] == b"\x1f\x8b" or data[:4] == b"\x28\xb5\x2f\xfd":
        return _IGNORED  # compressed: logs only
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if not own_folder:
            return _IGNORED
        return _unreadable("invalid_utf8", f"not UTF-8 at byte {error.start}", data.decode("utf-8", "replace"))
    if text.lstrip()[0] in "{[" and not looks_like_ace_text(text):
        return _read_json(text, name, own_folder=own_folder)
    if looks_like_kayba_markdown(text):
        return Contents("kayba-markdown", "read", parsed=read_kayba_markdown(text))
    if looks_like_ace_text(text):
        return Contents("ace-text", "read", parsed=read_ace_text(text))
    return _IGNORED


def _read_json(text: str, name: str, *, own_folder: bool) -> Contents:
    if _is_json_lines(text):
        return _IGNORED
    marked = own_folder or any(mark in text for mark in _MARKS)
    try:
        document = parse_json(text)
    except DuplicateKey as error:
        return _unreadable(f"duplicate_key:{error}", "an object names a key twice", text) if marked else _IGNORED
    except (ValueError, RecursionError) as error:
        return _unreadable("invalid_json", str(error), text) if marked else _IGNORED
    if isinstance(document, list):
        is_bullets = any(isinstance(entry, Mapping) and {"id", "content"} <= entry.keys() for entry in document)
        return _bullets_with_evidence(document, text) if is_bullets else _IGNORED
    if not isinstance(document, Mapping):
        return _IGNORED
    return _read_object(document, text, name)


def _read_object(document: Mapping[str, Any], text: str, name: str) -> Contents:
    entries = document.get("bullets", document.get("skills"))
    if isinstance(entries, Mapping):
        return Contents("kayba-json", "read", parsed=read_bullets_by_id(document, text))
    if isinstance(entries, list):
        return _bullets_with_evidence(document, text)
    if "new_bullets" in document and "delta_id" in document:
        return Contents("evidence-delta", "recognised")
    if isinstance(document.get("operations"), list):
        return Contents("delta-batch", "recognised")
    try:
        if name == MANIFEST_NAME and "agent_id" in document:
            return Contents("agent-manifest", "read", manifest=read_manifest(document))
        if looks_like_run(document):
            return Contents("adaptation-run", "read", run=read_run(document))
    except Unfit as unfit:
        return _unreadable(unfit.reason, unfit.detail, text)
    return _IGNORED


def _bullets_with_evidence(document: Any, text: str) -> Contents:
    return Contents("evidence-json", "read", parsed=read_bullets_with_evidence(document, text))


def _is_json_lines(text: str) -> bool:
    """Whether the first line is a whole JSON value and others follow: a log, an index, labels."""
    first, _, others = text.lstrip().partition("\n")
    if not others.strip():
        return False
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return True


def _unreadable(reason: str, detail: str, text: str) -> Contents:
    return Contents("unreadable", "quarantined", rejected=(Rejected(reason, detail, text[:_SHOWN]),))
