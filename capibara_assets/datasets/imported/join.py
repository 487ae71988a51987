"""Imports examples: redacts them, gives each a permanent group and split, and adds them to a domain without leaks.

A split that the import names is kept; else equal and near-equal examples form a group, and the group gets the split of
the examples that it resembles (earlier imports, any domain's), or one by its digest. An example that would be in two
splits is left out with that reason: existing examples stay, then test, then validation, then training.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from capibara_assets.datasets.imported.formats import LANGUAGES
from capibara_assets.datasets.imported.read import ExampleFile
from capibara_assets.datasets.imported.schema import ImportedLine
from capibara_assets.datasets.imported.splits import STRICTEST, find_places, too_close
from capibara_assets.datasets.imported.traits import (
    Traits,
    code_of,
    default_language,
    linked_pairs,
    spoken_text,
    traits_of,
    traits_of_examples,
)
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import Example, Kind, LeftOut, Split
from capibara_assets.datasets.tokens.chat_forms import Message
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.executions.formats.envelope_reader import Recorded
from capibara_assets.executions.secrets.prefilter import may_hold_secrets
from capibara_assets.executions.secrets.redact import redact_name, redact_sessions, redacted_names
from capibara_assets.executions.secrets.rules import find_secrets
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.records import table

EQUAL = "equal to an example of the experience"
TENANT = "of another tenant than the recipe trains for"
KIND: Kind = "chat"
QUALITY = 0.5  # nothing proves an imported answer, nothing refutes it
_REDACTED_AT_ONCE = 2_000
_PASSES = 3  # a placeholder may reveal another secret beside it
_START = datetime(2000, 1, 1, tzinfo=UTC)


Wanted = tuple[ExampleFile, Split | None]  # a file, and its split; None: by groups


@dataclass(frozen=True)
class Incoming:
    """One example of a file, redacted."""

    file_digest: str
    file: str
    line: int
    format: str
    messages: tuple[Message, ...]
    language: str
    split: Split | None
    licence: str | None
    source: str | None
    tenant: str | None
    secrets: int
    example_id: str

    def record(self, example_id: str | None, reason: str | None) -> ImportedLine:
        """The entry for its line: the example that holds it, or the reason for leaving it out."""
        return ImportedLine(
            file_digest=self.file_digest,
            line=self.line,
            file=self.file,
            format=self.format,
            wanted_split=self.split,
            example_id=example_id,
            reason_left_out=reason,
            secrets=self.secrets,
            licence=self.licence,
            source=self.source,
            tenant=self.tenant,
        )


@dataclass(frozen=True)
class Stated:
    """Licence, source and tenant of a file, as stated at its import; its records may state their own."""

    licence: str | None = None
    source: str | None = None
    tenant: str | None = None


@dataclass(frozen=True)
class Imported:
    """All imports of a domain: the examples (Example) and every line that was read (ImportedLine)."""

    examples: pl.DataFrame
    lines: pl.DataFrame

    @classmethod
    def empty(cls) -> "Imported":
        """No imports yet."""
        return cls(table(Example, []), table(ImportedLine, []))


def incoming(
    domain: Domain, file: ExampleFile, split: Split | None, stated: Stated = Stated(), also: Sequence[str] = ()
) -> list[Incoming]:
    """The redacted examples of a file; the same secret has the same placeholder within an example.

    The names of file, licence, source and tenant are redacted as names: different ones stay different.

    Args:
        also: personal data that is redacted as well, as in `redact_sessions`.
    """
    examples: list[Incoming] = []
    stated_texts = {text for row in file.rows for text in (row.parsed.licence, row.parsed.source) if text}
    plain = redacted_names([*stated_texts, *filter(None, (stated.licence, stated.source, stated.tenant)), file.name])
    name, tenant = plain.get(file.name, file.name), stated.tenant and plain.get(stated.tenant, stated.tenant)
    for start in range(0, len(file.rows), _REDACTED_AT_ONCE):
        rows = file.rows[start : start + _REDACTED_AT_ONCE]
        languages = [_language(row.parsed.messages, row.parsed.language, domain) for row in rows]
        sessions = [_session(row.parsed.messages, lang) for row, lang in zip(rows, languages, strict=True)]
        counts = redact_sessions(sessions, also)
        redacted = [_redacted(row.parsed.messages, session) for row, session in zip(rows, sessions, strict=True)]
        across = _redact_across(redacted)
        for row, language, messages, secrets, more in zip(rows, languages, redacted, counts, across, strict=True):
            licence, source = row.parsed.licence or stated.licence, row.parsed.source or stated.source
            identity = ["imported", domain, messages]
            examples.append(
                Incoming(
                    file_digest=file.digest,
                    file=name,
                    line=row.line,
                    format=row.parsed.format,
                    messages=tuple(messages),
                    language=language,
                    split=split,
                    licence=licence and plain.get(licence, licence),
                    source=source and plain.get(source, source),
                    tenant=tenant,
                    secrets=sum(secrets) + more,
                    example_id=sha256_bytes(canonical_json(identity))[:32],
                )
            )
    return examples


def place_incoming(
    domain: Domain, before: Imported, others: Sequence[pl.DataFrame], new: Iterable[Incoming], recipe: DatasetRecipe
) -> Imported:
    """Add `new` imports to a domain; existing ones keep group and split.

    Independent of the order of `new`.

    Args:
        others: tables (Example) into whose other splits nothing may leak: the examples of every domain's experience,
            and the imports of the other domains.
    """
    ordered = sorted(new, key=lambda i: (STRICTEST.index(i.split), i.example_id, i.file_digest, i.line))
    known = pl.concat([before.examples, *others])
    traits = [(item, traits_of(item.messages, KIND, item.language, recipe)) for item in ordered]
    splits_before = dict(before.examples.select("example_id", "split").iter_rows())
    held = {spoken_text(json.loads(m)): i for i, m in before.examples.select("example_id", "messages").iter_rows()}
    firsts: dict[str, tuple[Incoming, Traits]] = {}
    lines: list[ImportedLine] = []
    equal: list[tuple[Incoming, Incoming]] = []
    for item, trait in traits:
        if (example_id := held.get(trait.text)) is not None:
            stays = splits_before[example_id]
            clash = item.split not in (None, stays)
            lines.append(item.record(None, too_close(stays)) if clash else item.record(example_id, None))
        elif (first := firsts.get(trait.text)) is not None:
            if item.split not in (None, first[0].split) and first[0].split is not None:
                lines.append(item.record(None, too_close(first[0].split)))
            else:
                equal.append((item, first[0]))
        else:
            firsts[trait.text] = (item, trait)
    fresh = list(firsts.values())
    fresh_traits = [(trait, item.split) for item, trait in fresh]
    places = find_places(known, traits_of_examples(known, recipe), fresh_traits, recipe)
    for (item, _), place in zip(fresh, places, strict=True):
        lines.append(item.record(None, place) if isinstance(place, str) else item.record(item.example_id, None))
    reasons = {item.example_id: place for (item, _), place in zip(fresh, places, strict=True) if isinstance(place, str)}
    for item, of_it in equal:
        reason = reasons.get(of_it.example_id)
        lines.append(item.record(None if reason else of_it.example_id, reason))
    rows = [
        _example(domain, item, *place, recipe)
        for (item, _), place in zip(fresh, places, strict=True)
        if not isinstance(place, str)
    ]
    every_line = pl.concat([before.lines, table(ImportedLine, lines)])
    return _derived(pl.concat([before.examples, table(Example, rows)]), every_line)


def without_files(imported: Imported, digests: Iterable[str]) -> Imported:
    """Remove these files from the imports; examples that other files also hold keep group and split."""
    lines = imported.lines.filter(~pl.col("file_digest").is_in(list(digests)))
    return _derived(imported.examples, lines)


def add_imported(
    examples: pl.DataFrame, imported: pl.DataFrame | None, recipe: DatasetRecipe
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add the imported examples to a domain's own; also the unused ones (LeftOut).

    Examples of the experience do not change. An imported one is left out if it is equal to one of them, is too close
    to one in another split, or belongs to a tenant that the recipe does not train for.
    """
    if imported is None or imported.is_empty():
        return examples, table(LeftOut, [])
    reasons: dict[str, str] = {}
    if recipe.tenants is not None:
        for example_id, tenants in imported.select("example_id", "tenants").iter_rows():
            if not set(tenants) <= set(recipe.tenants):
                reasons[example_id] = TENANT
    candidates = imported.filter(~pl.col("example_id").is_in(list(reasons))).sort("example_id")
    own = examples.sort("example_id")
    both = pl.concat([own.select(candidates.columns), candidates])
    ids, splits = both["example_id"].to_list(), both["split"].to_list()
    traits = traits_of_examples(both, recipe)
    texts = {trait.text for trait in traits[: own.height]}
    for left, right in linked_pairs(traits, splits, recipe):
        if left < own.height <= right and splits[left] != splits[right]:
            reasons.setdefault(ids[right], too_close(splits[left]))
    for example_id, trait in zip(ids[own.height :], traits[own.height :], strict=True):
        if trait.text in texts:
            reasons.setdefault(example_id, EQUAL)
    kept = candidates.filter(~pl.col("example_id").is_in(list(reasons)))
    left_out = [LeftOut(unit_id=example_id, reason=reason) for example_id, reason in reasons.items()]
    return pl.concat([examples, kept.select(examples.columns)]).sort("example_id"), table(LeftOut, left_out)


def import_figures(examples: pl.DataFrame, unused: pl.DataFrame) -> dict[str, Any]:
    """Number of imported examples in a dataset, and of those left out by reason (the tables of `add_imported`)."""
    return {
        "examples": int((examples["provenance"] == "imported").sum()),
        "left_out": dict(sorted(unused["reason"].value_counts().iter_rows())),
    }


def _example(domain: Domain, item: Incoming, group: str, split: Split, recipe: DatasetRecipe) -> Example:
    answer = "\n".join(m["content"] for m in item.messages if m["role"] == "assistant")
    code = "\n".join(text for text, _ in code_of(answer, item.language)) or answer
    return Example(
        example_id=item.example_id,
        domain=domain,
        kind=KIND,
        language=item.language,
        messages=json.dumps(item.messages, ensure_ascii=False),
        group_id=group,
        split=split,
        difficulty=difficulty(code, item.language, 0, [], recipe.difficulty),
        quality=QUALITY,
        cluster_id=item.example_id,
        proof=None,
        diff=None,
        test=None,
        derived=None,
        weight=1.0,
        balance=1.0,
        verified="unverified",
        not_replayed="imported: no record of its execution",
        provenance="imported",
        execution_ids=[],
        bullet_ids=[],
        sandbox_ids=[],
        licence=None,
        source=None,
        tenants=[],
        source_places=[],
    )


def _derived(examples: pl.DataFrame, lines: pl.DataFrame) -> Imported:
    """Update examples from their lines: weight, licences, sources, tenants, places; drop those without a line."""
    of: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines.filter(pl.col("example_id").is_not_null()).sort("file_digest", "line").iter_rows(named=True):
        of[line["example_id"]].append(line)
    rows = [
        Example(
            **{
                **row,
                "weight": round(1 + math.log(len(of[row["example_id"]])), 6),
                "licence": stated_once(line["licence"] for line in of[row["example_id"]]),
                "source": stated_once(line["source"] for line in of[row["example_id"]]),
                "tenants": sorted({line["tenant"] for line in of[row["example_id"]] if line["tenant"]}),
                "source_places": sorted(f"{line['file']}:{line['line']}" for line in of[row["example_id"]]),
            }
        )
        for row in examples.iter_rows(named=True)
        if row["example_id"] in of
    ]
    return Imported(table(Example, rows), lines.sort("file_digest", "line"))


def stated_once(values: Iterable[str | None]) -> str | None:
    """The different licences or sources of an example, as one text; None where none is stated."""
    return "; ".join(sorted({value for value in values if value})) or None


def _language(messages: Sequence[Message], stated: str | None, domain: Domain) -> str:
    """The language of a conversation: as stated, else of the first answer block that names one, else the domain's."""
    fallback = default_language(domain)
    answers = [m["content"] for m in messages if m["role"] == "assistant"]
    named = (language for text in answers for _, language in code_of(text, fallback) if language in LANGUAGES)
    return stated or next(named, fallback)


def _session(messages: Sequence[Message], language: str) -> list[Recorded]:
    """The conversation in the form that redaction takes: answers as code, other turns as tasks, in order."""
    return [
        Recorded(
            execution_id=f"{index:06d}", sandbox_id="", context_id=None, agent_id=None, tenant=None,
            timestamp=_START + timedelta(seconds=index), template_id=None, language=language,
            code=message["content"] if message["role"] == "assistant" else "",
            task=message["content"] if message["role"] != "assistant" else None,
            outcome="ok", stdout="", stderr="", result_text=None, error_name=None, error_value=None, traceback=None,
            execution_count=None, duration_ms=None, timeout_s=None, licence=None, source=None,
        )
        for index, message in enumerate(messages)
    ]  # fmt: skip


def _redacted(messages: Sequence[Message], session: Sequence[Recorded]) -> list[Message]:
    return [
        {"role": m["role"], "content": record.code if m["role"] == "assistant" else record.task or ""}
        for m, record in zip(messages, session, strict=True)
    ]


def _redact_across(conversations: Sequence[list[Message]]) -> list[int]:
    """Redact, in place, secrets that only the whole conversation reveals (a question "the password =", and the answer).

    Returns the number of secrets of each conversation.
    """
    suspects = may_hold_secrets(["\n".join(m["content"] for m in messages) for messages in conversations])
    counts = []
    for messages, suspect in zip(conversations, suspects, strict=True):
        replaced = 0
        for _ in range(_PASSES if suspect else 0):
            whole = "\n".join(message["content"] for message in messages)
            values = {whole[secret.start : secret.end]: secret.kind for secret in find_secrets(whole)}
            held = [value for value in values if any(value in message["content"] for message in messages)]
            if not held:
                break
            for value in held:
                number = 1 + max(map(int, re.findall(rf"<{values[value]}:(\d+)>", whole)), default=0)
                whole = whole.replace(value, f"<{values[value]}:{number}>")
                for message in messages:
                    message["content"] = message["content"].replace(value, f"<{values[value]}:{number}>")
                replaced += 1
        counts.append(replaced)
    return counts


def new_files(before: Imported, files: Sequence[Wanted], tenant: str | None = None) -> list[Wanted]:
    """The files that are not imported yet, each once.

    Args:
        tenant: owner that is stated for the files; None: nothing is stated, known files keep theirs.

    Raises:
        InputError: a file is given, or was imported, for another split or tenant.
    """
    columns = before.lines.select("file_digest", "wanted_split", "file", "tenant").unique().iter_rows()
    asked = tenant and redact_name(tenant)
    there = {digest: (split, name, owner) for digest, split, name, owner in columns}
    new: dict[str, Wanted] = {}
    for file, split in files:
        was, name, owner = there.get(file.digest, (split, file.name, asked))
        if was != split or (asked is not None and owner != asked):
            how = f"{f'for {was}' if was else 'split by group'}, {f'of tenant {owner}' if owner else 'of no tenant'}"
            raise InputError(
                f"{file.name} is imported already (as {name}, {how}): remove it "
                f"first with `capibara dataset remove {file.digest[:12]}`, or use --replace"
            )
        if file.digest in new and new[file.digest][1] != split:
            raise InputError(f"{file.name} has the bytes of {new[file.digest][0].name}: give it for one split only")
        if file.digest not in there:
            new.setdefault(file.digest, (file, split))
    return list(new.values())
