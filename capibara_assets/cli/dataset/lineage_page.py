"""HTML page of the lineage of an adapter or execution, from the logs to served models, with forgotten records."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from capibara_assets.escaping.pages import html_page
from capibara_assets.executions.formats.agents.places import in_file
from capibara_assets.lineage.adapters import TracedAdapter
from capibara_assets.lineage.lost import lost
from capibara_assets.lineage.records import Results
from capibara_assets.lineage.shares import NOBODY, Share, contributions, execution_shares, removals, serving_slots
from capibara_assets.lineage.trails import ExecutionPlace, ExecutionTrail, PublishedResult
from capibara_assets.storage.manifest import title_of

SHOWN = 25  # rows of a table; the rest is counted
ANOTHER = ("evaluation",)  # results that judge a model and do not hold it


@dataclass(frozen=True)
class Line:
    """A line of a stage; `level` colours it: good or bad, else empty."""

    words: str
    level: str = ""


@dataclass(frozen=True)
class WayStage:
    """One stage on the way of a record."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class ShareTable:
    """Contributors of one kind, and a note on those omitted."""

    title: str
    what: str
    rows: tuple[Share, ...]
    more: str = ""

    @classmethod
    def of(cls, title: str, what: str, shares: Sequence[Share]) -> "ShareTable":
        left = len(shares) - SHOWN
        more = f"and {left:,} more, each with {shares[SHOWN].examples:,} examples or fewer" if left > 0 else ""
        return cls(f"{title} ({len(shares):,})", what, tuple(shares[:SHOWN]), more)


@dataclass(frozen=True)
class LineagePage:
    """Content of the lineage page; everything in it is escaped as text."""

    name: str
    headline: str
    about: str
    way: tuple[WayStage, ...]
    question: str
    note: str
    tables: tuple[ShareTable, ...]
    forgotten: tuple[str, ...]
    details: Mapping[str, Sequence[str]]

    def html(self) -> str:
        """The page; the same results give the same bytes."""
        return html_page("capibara_assets.cli", "lineage.html.jinja", {"page": self})


def adapter_page(results: Results, traced: TracedAdapter) -> LineagePage:
    """The page of an adapter or model."""
    trail, given = traced.trail, contributions(results, traced)
    named = sum(one.name != NOBODY for one in given.agents)
    people = f"{_count(named, 'named agent')} in {_count(len(given.sandboxes), 'sandbox')}"
    executions = _count(len(trail.executions), "execution")
    datasets = [
        Line(f"{one.domain} {one.digest[:12]}, {one.state}", "bad" if one.state != "present" else "")
        for one in trail.datasets
    ]
    others = [Line(f"{one.domain}/{one.name} {one.digest[:12]}, of a round") for one in trail.round_voters]
    own = Line(f"{trail.what} {trail.digest[:12]}, {'counts now' if trail.current else 'a former one'}", "good")
    lacking = f" Not known, as it cannot be read here: {'; '.join(trail.unread)}." if trail.unread else ""
    train = f"{'at least ' if trail.unread else ''}{_count(given.examples, 'train example')}"
    way = (
        WayStage("Experience", (Line(executions), Line(people))),
        WayStage("Playbooks", (Line(_count(len(trail.bullets), "bullet")),)),
        WayStage("Datasets", tuple(datasets)),
        WayStage("Voters", (*(Line(name[: name.index(" ") + 13]) for name in trail.voters), *others)),
        WayStage("This", (own,)),
        *_after(given.models, serving_slots(results), trail.artifact),
    )
    return LineagePage(
        name=trail.name,
        headline=f"{train} of {executions}, by {people}",
        about=f"Digest {trail.digest}; it was validated on {_count(trail.validation, 'example')}.{lacking}",
        way=way,
        question="Who it learnt from",
        note="Train examples that hold something of each; several may share in one example, so shares can add to more"
        " than 100 %.",
        tables=tuple(
            ShareTable.of(title, what, shares)
            for title, what, shares in (
                ("Agents", "agent", given.agents),
                ("Sandboxes", "sandbox", given.sandboxes),
                ("Bullets", "bullet of a playbook", given.bullets),
                ("Executions", "execution", given.executions),
            )
            if shares
        ),
        forgotten=_forgotten(results, [one.domain for one in trail.datasets]),
        details={
            "Licences": [f"{name}: {n:,} examples" for name, n in trail.licences.items()],
            "Sources": [f"{source} ({licence}): {n:,} examples" for source, licence, n in trail.sources],
            "Tenants": [f"{name}: {n:,} examples" for name, n in trail.tenants.items()],
            "Certificates": [f"{domain} {digest}" for domain, digest in trail.certificates.items()],
            "Voters of rounds, and the datasets they say they were trained on": [
                f"{one.domain}/{one.name}, key {one.public_key}: "
                + (", ".join(map(" ".join, one.datasets)) or "not known")
                for one in trail.round_voters
            ],
            "Base model and seeds": [*trail.base_model, *map(str, trail.seeds)],
            "Settings": [f"{name} {digest}" for name, digest in trail.settings.items()],
        },
    )


def execution_page(results: Results, trail: ExecutionTrail) -> LineagePage:
    """The page of an execution."""
    shares, unread = execution_shares(results, trail.execution_id), "; ".join(map(str, lost(results)))
    lacking = f" Not known, as it cannot be read here: {unread}." if unread else ""
    now = sorted({f"{one.domain}/{one.voter}" for one in trail.seen_by if one.current})
    left = [Line(f"{domain}: left out, {reason}", "bad") for domain, reason in trail.left_out.items()]
    uses = [Line(f"{one.domain} {one.kind}, {one.split}: {one.role}") for one in trail.examples[:SHOWN]]
    way = (
        WayStage("Log", _place(trail.place)),
        WayStage("Group", (Line(f"{trail.group_id or 'none'}, {trail.split or 'no split'}"),)),
        WayStage("Examples", (*uses, *left) or (Line("none"),)),
        WayStage("Voters that saw it", tuple(map(Line, now)) or (Line("none"),)),
        *_after(trail.models, serving_slots(results), ""),
    )
    return LineagePage(
        name=trail.execution_id,
        headline=f"{_count(len(trail.examples), 'example')} in {_count(len(trail.datasets), 'dataset')},"
        f" seen by {_count(len(now), 'present voter')}",
        about=f"Domains: {', '.join(trail.domains) or 'none'}.{lacking}",
        way=way,
        question="How much of each voter it is",
        note="Train examples that hold it, of all that the voter was trained on.",
        tables=(ShareTable.of("Voters", "voter", shares),) if shares else (),
        forgotten=_forgotten(results, trail.datasets),
        details={
            "Tables": [_named(one) for one in trail.tables],
            "Datasets": [f"moe_dataset[{domain}] {digest}" for domain, digest in trail.datasets.items()],
            "Evaluated on": trail.evaluated,
            "Examples": [
                f"{one.example_id} {one.domain} {one.kind}, {one.split}: {one.role}" for one in trail.examples
            ],
        },
    )


def _after(models: Sequence[PublishedResult], slots: Mapping[str, str], own: str) -> Iterable[WayStage]:
    """The stages behind: models made from it that count now, former ones counted, and where one of them serves."""
    lines = [Line(_named(one)) for one in models if one.current and one.asset not in (*ANOTHER, "promoted_model")]
    former = sum(not one.current for one in models)
    lines += [Line(f"and {former:,} former results")] * bool(former)
    if lines:
        yield WayStage("Made from it", tuple(lines))
    digests = {one.digest for one in models} | {own}
    serving = [Line(f"serves as {slot}", "good") for digest, slot in slots.items() if digest in digests]
    yield WayStage("Served", tuple(serving) or (Line("nothing made from it is served now"),))


def _place(place: ExecutionPlace | None) -> tuple[Line, ...]:
    if place is None:
        return (Line("no longer in the logs that were read", "bad"),)
    named = {"agent": place.agent_id, "tenant": place.tenant, "licence": place.licence, "source": place.source}
    return (
        Line(in_file(place.execution_id, place.file, place.line)),
        Line(f"sandbox {place.sandbox_id}"),
        *(Line(f"{name} {value}") for name, value in named.items() if value),
    )


def _forgotten(results: Results, domains: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        f"{one.asset}[{one.partition}] {one.digest[:12]}, removed {one.when[:10]}: it held a forgotten record"
        for one in removals(results, domains)
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 'es' if what.endswith('x') else 's'}"


def _named(one: PublishedResult) -> str:
    return title_of(one.asset, one.partition, one.digest[:12])
