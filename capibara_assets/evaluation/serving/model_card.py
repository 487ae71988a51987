"""The model card of what is served, in the Hub's format: description, figures with intervals, licences, limits.

Depends only on what is served (no time, no path).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from capibara_assets.escaping.languages import (
    flat,
    markdown_block,
    markdown_code,
    markdown_list,
    markdown_table,
    markdown_text,
)

_SHORT = 12


@dataclass(frozen=True)
class ServedDomain:
    """What is served in one domain.

    Attributes:
        checkpoint: digest of the consensus checkpoint; None: the base model answers.
        decision: the evaluation's decision about that checkpoint; empty: no longer in the store.
        reason: why it is served, from the pointer document.
    """

    domain: str
    checkpoint: str | None
    reason: str
    decision: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CardFacts:
    """The facts that the card states.

    Attributes:
        licence: the Hub's identifier (or several) of the licences of data and base model.
        licences: licence as stated -> training examples under it.
        credits: attribution lines that the licences require.
        base_licence: as the base model's card states it.
        router: the report of `expert_router`.
        routing: the router beside its alternatives, with losses; empty: not measured.
        quantised: kind -> what was done.
        commands: name -> how to serve.
        elsewhere: domains whose adapters were trained on data that this store does not have.
    """

    title: str
    base_name: str
    base_digest: str
    base_licence: str
    licence: str | Sequence[str]
    licences: Mapping[str, int]
    credits: Sequence[str]
    examples: int
    domains: Sequence[ServedDomain]
    merged: str | None
    router: Mapping[str, Any]
    routing: Mapping[str, Any]
    commands: Mapping[str, str]
    quantised: Sequence[str] = ()
    elsewhere: Sequence[str] = ()


def card(facts: CardFacts) -> str:
    """Write the card: YAML front matter for the Hub, then sections for readers."""
    results = [_result(one.domain, name, interval) for one in facts.domains for name, interval in _figures(one)]
    licence: Any = facts.licence if isinstance(facts.licence, str) else list(facts.licence)  # the Hub takes both
    data = ModelCardData(
        base_model=facts.base_name,
        library_name="peft",
        license=licence,
        language=["code"],
        pipeline_tag="text-generation",
        tags=sorted({"capibara-assets", "lora", *(one.domain for one in facts.domains if one.checkpoint)}),
        model_name=facts.title,
        eval_results=results or None,
    )
    if facts.licence == "other":
        data.license_name = flat(", ".join(sorted(facts.licences))) or "other"
    sections = [
        f"# {markdown_text(facts.title)}",
        "One LoRA adapter per domain on one base model, each agreed on by several independently trained voters and "
        "promoted by a paired test on held-out examples, with a router that picks one for a prompt or leaves it to the "
        "base model.",
        f"## Base model\n\n{markdown_code(facts.base_name)}, digest {markdown_code(facts.base_digest)}, "
        f"licence: {markdown_text(facts.base_licence)}.",
        "## What serves\n\n"
        + markdown_table(("domain", "checkpoint", "why"), [_row(one) for one in facts.domains])
        + _merged(facts),
        "## Evaluation\n\n" + _evaluation(facts),
        "## Router\n\n" + _router(facts),
        "## How to serve\n\nIn this folder:\n\n"
        + (
            "\n\n".join(f"{name}:\n\n{markdown_block(text, 'sh')}" for name, text in facts.commands.items())
            or "The base alone serves."
        )
        + "\n\nTransformers and PEFT: `PeftModel.from_pretrained(base, 'adapters/<domain>')`.",
        "## Licences of the data\n\n"
        + markdown_table(("licence", "training examples"), [(name, str(n)) for name, n in facts.licences.items()])
        + f"\n\n{facts.examples} training examples in all; one of several executions counts for each of their "
        f"licences. The base model's licence applies as well.{_elsewhere(facts)}",
    ]
    if facts.credits:
        sections.append("## Attribution\n\n" + markdown_list(facts.credits))
    sections.append("## Limits\n\n" + _limits(facts))
    return f"---\n{data.to_yaml(line_break=chr(10))}\n---\n\n" + "\n\n".join(sections) + "\n"


def _elsewhere(facts: CardFacts) -> str:
    """What a round of several organisations leaves open."""
    if not facts.elsewhere:
        return ""
    return (
        f"\n\nThe adapters of {', '.join(facts.elsewhere)} are results of rounds between organisations, trained on data"
        " that are not here: their licences are not among these. The organisations that took part know them."
    )


def intervals(decision: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The figures of a decision and its arms that have an interval and a number of items, by name."""
    arms = {f"score_of_{arm}": one.get("score") for arm, one in (decision.get("arms") or {}).items()}
    return {
        name: value
        for name, value in {**decision, **arms}.items()
        if isinstance(value, Mapping) and {"estimate", "low", "high", "n"} <= value.keys()
    }


def _figures(one: ServedDomain) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if one.checkpoint is not None:
        yield from sorted(intervals(one.decision).items())


def _result(domain: str, name: str, interval: Mapping[str, Any]) -> EvalResult:
    return EvalResult(
        task_type="text-generation",
        dataset_type=f"moe_dataset-{domain}",
        dataset_name=f"{domain}, held-out examples",
        dataset_split="test",
        metric_type=name,
        metric_value=round(float(interval["estimate"]), 6),
        metric_name=f"{name.replace('_', ' ')} [{interval['low']:.4f}, {interval['high']:.4f}], n = {interval['n']}",
    )


def _row(one: ServedDomain) -> tuple[str, str, str]:
    return one.domain, markdown_code(one.checkpoint[:_SHORT]) if one.checkpoint else "base model", one.reason


def _merged(facts: CardFacts) -> str:
    if facts.merged is None:
        return "\n\nNo merged model serves: it does as soon as every domain is promoted."
    few = f", and in few bits: {markdown_text(', '.join(facts.quantised))}" if facts.quantised else ""
    return f"\n\nMerged model: `{facts.merged[:_SHORT]}` in `merged/`{few}."


def _evaluation(facts: CardFacts) -> str:
    rows = [
        (
            one.domain,
            name.replace("_", " "),
            f"{interval['estimate']:.3f}",
            f"{interval['low']:.3f} to {interval['high']:.3f}",
            str(interval["n"]),
        )
        for one in facts.domains
        for name, interval in _figures(one)
    ]
    if not rows:
        return "No adapter serves whose evaluation is in the store."
    return (
        markdown_table(("domain", "figure", "estimate", "interval", "n"), rows)
        + "\n\nPaired, on held-out examples of other problems than those that were trained on; intervals resample "
        "whole groups of examples."
    )


def _router(facts: CardFacts) -> str:
    if not facts.router.get("trained"):
        return "There is none: name the adapter in each request."
    report = facts.router
    words = [
        f"Reads {'hashed n-grams' if report.get('kind', 'ngrams') == 'ngrams' else 'hidden states of the base'}, knows "
        f"{markdown_text(', '.join(report['experts']))}."
    ]
    if report.get("test_accuracy") is not None:
        words.append(f"Right for {report['test_accuracy']:.1%} of {report['test_prompts']} held-out prompts.")
    if "ece" in report:
        words.append(
            f"Expected calibration error {report['ece']:.3f}; leaves {1 - report['answered']:.1%} to the base."
        )
    if facts.routing:
        it = facts.routing
        words.append(
            f"Loss per token {it['routed']:.3f} when routed, {it['oracle']:.3f} with the best expert for each of "
            f"{it['prompts']} prompts (regret {it['regret']:.3f}, 95 % interval {it['regret_low']:.3f} to "
            f"{it['regret_high']:.3f})"
            + (f", {it['merged']:.3f} always merged." if it.get("merged") is not None else ".")
        )
    return " ".join(words)


def _limits(facts: CardFacts) -> str:
    base = [one.domain for one in facts.domains if one.checkpoint is None]
    lines = [
        "Trained and judged on code that agents ran in sandboxes: other code and prose were not measured.",
        "The figures are losses and scores on held-out examples of the same sources; they say nothing about safety. "
        "Run what it writes in a sandbox.",
    ]
    if base:
        lines.append(f"No adapter serves in {', '.join(base)}: the base model answers there.")
    if facts.quantised:
        lines.append("The quantised exports were not evaluated by themselves: measure them before they serve.")
    return markdown_list(lines)
