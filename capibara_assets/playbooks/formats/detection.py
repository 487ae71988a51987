"""Detects the format family of a playbook file by its content, and reads it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import yaml

from capibara_assets.deployment.yaml_text import load_yaml
from capibara_assets.playbooks.formats.ace_json import (
    entries_of,
    looks_like_bullet,
    read_bullets_by_id,
    read_bullets_with_evidence,
    read_sections_of_lists,
)
from capibara_assets.playbooks.formats.ace_text import looks_like_ace_text, read_ace_text
from capibara_assets.playbooks.formats.deltas import Delta, delta_family, looks_like_delta, read_deltas
from capibara_assets.playbooks.formats.json_text import TWICE, doubled_key, parse_json, whole_number
from capibara_assets.playbooks.formats.markdown import looks_like_kayba_markdown, read_kayba_markdown
from capibara_assets.playbooks.formats.parsed import DAMAGED, NOT_UTF8, ParsedPlaybook, Rejected, UnfitEntry
from capibara_assets.playbooks.formats.runs import (
    AgentManifest,
    RunReport,
    looks_like_manifest,
    looks_like_run,
    read_manifest,
    read_run,
)
from capibara_assets.playbooks.formats.toon import looks_like_toon, read_toon

_MARKS = ('"bullets"', '"skills"', '"helpful', '"harmful')
_NO_UTF8 = re.compile("[\udc80-\udcff]+")
_FENCED = re.compile(r"\A---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Contents:
    """The parsed contents of one file. `status` as in `PlaybookFile`; a playbook may hold its agent's manifest."""

    family: str
    status: Literal["read", "ignored", "quarantined"]
    parsed: ParsedPlaybook | None = None
    manifest: AgentManifest | None = None
    run: RunReport | None = None
    deltas: tuple[Delta, ...] = ()
    rejected: tuple[Rejected, ...] = ()


_IGNORED = Contents("unknown", "ignored")
_INVALID = "invalid_json"


def read_contents(data: bytes, *, own_folder: bool) -> Contents:
    """Detects a file's family and reads it.

    In a folder of playbooks (`own_folder`) an unreadable file is quarantined; elsewhere only when it bears the marks
    of a playbook, because it may be an execution log, which the ingest reads. Bytes that are not UTF-8 cost the entries
    that hold them.
    """
    if data[:2] == b"\x1f\x8b" or data[:4] == b"\x28\xb5\x2f\xfd":
        return _IGNORED  # compressed: logs only
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        contents = _read_damaged(data, own_folder=own_folder)
        if contents.status == "read" or not own_folder:
            return contents
        return _unreadable(NOT_UTF8, f"not UTF-8 at byte {error.start}", data.decode("utf-8", "replace"))
    return _read_text(text, own_folder=own_folder)


def _read_damaged(data: bytes, *, own_folder: bool) -> Contents:
    """Reads text of which some bytes are not UTF-8; damage between the entries is rejected once."""
    if b"\0" in data:
        return _IGNORED  # no text, or in another encoding
    text = _NO_UTF8.sub(DAMAGED, data.decode("utf-8-sig", "surrogateescape"))
    contents = _read_text(text, own_folder=own_folder)
    if contents.status != "read":
        return _IGNORED
    if any(each.reason == NOT_UTF8 for each in (*contents.rejected, *(contents.parsed or ParsedPlaybook()).rejected)):
        return contents
    before, _, after = text.partition(DAMAGED)
    line = before.rpartition("\n")[2] + DAMAGED + after.partition("\n")[0]
    said = Rejected(NOT_UTF8, "bytes that are not UTF-8, outside the entries", line, before.count("\n") + 1)
    return replace(contents, rejected=(*contents.rejected, said))


def _read_text(text: str, *, own_folder: bool) -> Contents:
    if not text.strip():
        return Contents("empty", "read" if own_folder else "ignored")
    if text.lstrip()[0] in "{[" and not looks_like_ace_text(text):
        return _read_json(text, own_folder=own_folder)
    if looks_like_toon(text):
        return Contents("kayba-toon", "read", parsed=read_toon(text))
    front, body = _split_front_matter(text)
    if looks_like_kayba_markdown(body):
        return _with_manifest(Contents("kayba-markdown", "read", parsed=read_kayba_markdown(body)), front, text)
    if looks_like_ace_text(body):
        return _with_manifest(Contents("ace-text", "read", parsed=read_ace_text(body)), front, text)
    return _IGNORED


def _split_front_matter(text: str) -> tuple[Mapping[str, Any], str]:
    """Splits off YAML front matter: (mapping, text in which its lines are blank, so that line numbers stay).

    The mapping is empty where there is no front matter, or it is no mapping.
    """
    fenced = _FENCED.match(text)
    if fenced is None:
        return {}, text
    try:
        values = load_yaml(fenced["yaml"])
    except yaml.YAMLError:
        return {}, text
    if not isinstance(values, dict):
        return {}, text
    return values, "\n" * fenced[0].count("\n") + text[fenced.end() :]


def _read_json(text: str, *, own_folder: bool) -> Contents:
    if _is_json_lines(text):
        return _read_json_lines(text)
    marked = own_folder or any(mark in text for mark in _MARKS)
    try:
        document = parse_json(text)
    except (ValueError, RecursionError) as error:
        if (lines := _read_json_lines(text)).status == "read":
            return lines
        return _unreadable(_INVALID, _why(error), text) if marked else _IGNORED
    contents = _read_document(document, text)
    if contents.status == "ignored" and marked and (twice := doubled_key(document)) is not None:
        return _unreadable(f"duplicate_key:{twice}", TWICE, text)
    return contents


def _read_document(document: Any, text: str) -> Contents:
    if looks_like_delta(document):
        return _deltas(document, text)
    if isinstance(document, list):
        return _list(document, document, text) if any(map(looks_like_bullet, document)) else _IGNORED
    return _read_object(document, text) if isinstance(document, Mapping) else _IGNORED


def _read_json_lines(text: str) -> Contents:
    """Reads a log of deltas, one per line, where most lines are whole; any other JSON Lines file is ignored."""
    documents, broken = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            documents += [parse_json(line)] if line.strip() else []
        except (ValueError, RecursionError) as error:
            broken.append(Rejected(_INVALID, _why(error), line, number))
    if len(broken) >= len(documents) or not looks_like_delta(documents):
        return _IGNORED
    contents = _deltas(documents, text)
    return replace(contents, rejected=(*contents.rejected, *broken))


def _deltas(document: Any, text: str) -> Contents:
    deltas, rejected = read_deltas(document, text)
    return Contents(delta_family(document), "read", deltas=deltas, rejected=rejected)


def _read_object(document: Mapping[str, Any], text: str) -> Contents:
    session = document.get("playbook")
    named, holder = entries_of(document), document
    if named is None and isinstance(session, Mapping):
        named, holder = entries_of(session), session
    known = named is not None or looks_like_run(document) or looks_like_manifest(document)
    twice = doubled_key(document, besides=named and named[1], lists=named is None)
    if known and twice is not None:  # outside the entries, which their readers check
        return _unreadable(f"duplicate_key:{twice}", TWICE, text)
    if named is not None:
        name, entries = named
        if name == "sections":
            contents = Contents("sections-json", "read", parsed=read_sections_of_lists(document, entries, text))
        elif isinstance(entries, Mapping):
            family = "kayba-json" if name in ("bullets", "skills") else f"{name}-json"
            contents = Contents(family, "read", parsed=read_bullets_by_id(holder, entries, text))
        else:
            contents = _list(holder, entries, text, name)
        return _with_manifest(contents, document, text)
    try:
        # a run may name its agent and its success rate as a manifest does: test for the run first
        if looks_like_run(document):
            return Contents("adaptation-run", "read", run=read_run(document))
        if looks_like_manifest(document):
            return Contents("agent-manifest", "read", manifest=read_manifest(document))
    except UnfitEntry as unfit:
        return _unreadable(unfit.reason, unfit.detail, text)
    return _IGNORED


def _list(document: Any, entries: list[Any], text: str, name: str = "bullets") -> Contents:
    family = "evidence-json" if name in ("bullets", "skills") else f"{name}-json"
    return Contents(family, "read", parsed=read_bullets_with_evidence(document, entries, text))


def _with_manifest(contents: Contents, document: Mapping[str, Any], text: str) -> Contents:
    """Adds the manifest that a playbook holds; an invalid manifest is rejected alone."""
    if not looks_like_manifest(document):
        return contents
    try:
        return replace(contents, manifest=read_manifest(document))
    except UnfitEntry as unfit:
        return replace(contents, rejected=(Rejected(unfit.reason, unfit.detail, text, locator="manifest"),))


def _is_json_lines(text: str) -> bool:
    """Whether the first line is a whole JSON value and others follow: a log, an index, labels."""
    first, _, others = text.lstrip().partition("\n")
    if not others.strip():
        return False
    try:
        json.loads(first, parse_int=whole_number)
    except (ValueError, RecursionError):
        return False
    return True


def _why(error: ValueError | RecursionError) -> str:
    return "nested too deep" if isinstance(error, RecursionError) else str(error)


def _unreadable(reason: str, detail: str, text: str) -> Contents:
    return Contents("unreadable", "quarantined", rejected=(Rejected(reason, detail, text),))
