"""The model card of capibara-nano, written from what the training run recorded: no number in it is typed by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError

SUMMARY = "training_summary.json"
_SHIPPED = "resources/base_models/capibara-nano"

_HEAD = """\
---
license: mit
library_name: transformers
pipeline_tag: text-generation
tags: [code, python, javascript, sql]
---
<!-- Written by `python -m workshop.base_model --card`; change the generator, not this file. -->

# capibara-nano

A very small language model of code, pre-trained from random weights by this repository, so that every stage of the
pipeline (adapters, votes, merges, evaluation) runs anywhere, offline, with a real model. It is a base model to
fine-tune and to test with, not an assistant.
"""

_TWICE = """\
It read files first, then conversations that need skills: repeating code and random words, editing and mending them,
telling what code prints, writing small functions (`workshop/base_model/skills.py`). The tasks come from a grammar of
their own that knows nothing of the experience that ships.
"""

_BESIDE = """\
Files were read side by side with conversations that need skills: repeating code and random words, editing and mending
them, telling what code prints, writing small functions and queries (`workshop/base_model/skills.py`). Processes drew
the conversations while the GPU trained; where it was faster than they, it read windows again. The tasks come from a
grammar of their own that knows nothing of the experience that ships. Requests are no targets: their tokens count in the
loss of `chat` below, but were not learned.
"""

_TAIL = """\
## Limits

- It has learned the shape of code, not its meaning: left alone it writes plausible fragments, rarely a program that
  solves a stated problem. It knows little English beyond docstrings and comments, and no other natural language.
- The generated JavaScript and SQL come from a grammar with few patterns. The held-out programs come from the same
  grammar, so their loss says little about JavaScript and SQL at large; the shipped JavaScript is a small part.
- The hold-out is split by document. Files of one package share idioms (and licence texts), so the Python loss is that
  of familiar projects, not of unseen ones.
- Conversations are documented functions and generated exchanges in the chat format, without any instruction tuning or
  alignment. Do not use what it writes unread.

## Licence

The weights, the tokenizer and the generated corpus are under the MIT licence. The files that were read keep their own
licences, as listed above; they are not part of this repository.
"""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are aligned to the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def _losses(held_out: dict[str, Any]) -> str:
    scores = {**held_out["languages"], "all": held_out["all"]}
    rows = [
        (
            language,
            f"{score['tokens']:,}",
            f"{score['nats_per_token']:.3f}",
            f"{score['ngram_nats_per_token']:.3f}",
            f"{score['bits_per_byte']:.3f}",
            f"{score['ngram_bits_per_byte']:.3f}",
        )
        for language, score in scores.items()
    ]
    head = ("held-out text", "tokens", "nats/token", "5-gram nats/token", "bits/byte", "5-gram bits/byte")
    return _table(head, rows)


def _composition(sources: Sequence[dict[str, Any]]) -> str:
    total = sum(source["bytes"] for source in sources)
    languages = dict.fromkeys(source["language"] for source in sources)
    shares = {
        language: sum(source["bytes"] for source in sources if source["language"] == language) for language in languages
    }
    said = ", ".join(f"{size / total:.1%} {language}" for language, size in sorted(shares.items(), key=lambda x: -x[1]))
    rows = [
        (
            source["name"].replace("-", " ") if not source["version"] else source["name"],
            source["version"] or "–",
            source["licence"],
            source["language"],
            f"{source['documents']:,}",
            f"{source['bytes'] / 1e6:.2f}",
        )
        for source in sorted(sources, key=lambda source: (source["language"], -source["bytes"]))
    ]
    return f"By bytes: {said}.\n\n" + _table(("source", "version", "licence", "as", "documents", "MB"), rows)


def _run(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """A run's rows of the table of trainings."""
    settings = summary["settings"]
    if drawn := summary.get("drawn_windows"):
        skills = round(settings["skills"] * settings["batch"]) * summary["steps"]
        passes = (summary["steps"] * settings["batch"] - skills) * settings["sequence"] / summary["training_tokens"]
        seen = (
            f"{summary['tokens']:,}: files {passes:.1f} times, {drawn:,} windows of skills {skills / drawn:.1f} times"
        )
        machine = ("GPU", f"{summary['machine']}, {settings['workers']} processes that draw")
    else:
        seen = f"{summary['tokens']:,} ({summary['tokens'] / summary['training_tokens']:.2f} passes)"
        machine = ("CPU threads", str(settings["threads"]))
    return [
        ("tokens seen", seen),
        ("steps", f"{summary['steps']:,} of {settings['batch'] * settings['sequence']:,} tokens"),
        ("time", f"{summary['seconds'] / 60:.1f} minutes"),
        machine,
        ("speed", f"{summary['tokens'] / summary['seconds']:,.0f} tokens/s"),
        ("optimiser", f"Muon {settings['matrix_rate']} (matrices), AdamW {settings['vector_rate']} (the rest)"),
        ("seed", str(settings["seed"])),
        ("PyTorch", summary["torch"]),
    ]


def _command(settings: dict[str, Any], out: str) -> str:
    """The command of a run, written to `out`."""
    then = ""
    if settings.get("start"):
        then = f" --corpus-bytes {settings['corpus_bytes']} --start FIRST --skills {settings['skills']:g}"
    elif settings.get("workers"):
        then = (
            f" --device {settings['device']} --workers {settings['workers']} --skills {settings['skills']:g}"
            f" --batch {settings['batch']} --micro-batch {settings['micro_batch']}"
        )
        then += f" --tokenizer {settings['tokenizer']}" if settings["tokenizer"] else ""
    return (
        f"python -m workshop.base_model --out {out} --state STATE --minutes {settings['minutes']:g}"
        f" --threads {settings['threads']} --seed {settings['seed']}{then}"
        + (" --compile" if settings["compiled"] else "")
    )


def card(summary: dict[str, Any], config: dict[str, Any]) -> str:
    """The card's text, from the run's summary and the model's configuration."""
    settings, before = summary["settings"], summary.get("before")
    runs = [before, summary] if before else [summary]
    commands = [_command(run["settings"], "FIRST" if run is before else _SHIPPED) for run in runs]
    if "drawn_windows" in summary:  # its losses are measured afterwards, on a machine without a GPU, too
        commands.append(f"{commands[-1]} --measure")
    facts = [
        ("architecture", f"Llama ({config['architectures'][0]}), tied embeddings"),
        ("parameters", f"{summary['parameters']:,}"),
        ("layers × width", f"{config['num_hidden_layers']} × {config['hidden_size']}"),
        ("attention heads", str(config["num_attention_heads"])),
        ("feed-forward width", str(config["intermediate_size"])),
        ("vocabulary", f"{config['vocab_size']:,} (byte-level BPE)"),
        ("context", f"{config['max_position_embeddings']:,} positions; trained on {settings['sequence']:,}"),
        ("stored as", config["dtype"]),
    ]
    columns = [_run(run) for run in runs]
    rows = [(cells[0][0], *(value for _, value in cells)) for cells in zip(*columns, strict=True)]
    head = ("", "first", "then") if before else ("", "value")
    return "\n".join(
        [
            _HEAD,
            "## Model\n",
            _table(("", "value"), facts),
            "\nChat format: `<|role|>`, a line break, the content, `<|end|>`, a line break; roles are system, user and"
            " assistant.\nThe template marks the assistant's tokens for `return_assistant_tokens_mask`.\n",
            "## Training\n",
            *([_TWICE] if before else [_BESIDE] if "drawn_windows" in summary else []),
            _table(head, rows),
            "\n```\n"
            + "\n".join(commands)
            + "\n```\n\nThe budget is wall-clock time, so a run elsewhere sees as many tokens as its"
            " machine is fast.\n",
            "## Held-out loss\n",
            _losses(summary["held_out"]),
            "\nThe 5-gram is an interpolated Kneser-Ney model of the same training tokens on the same targets.\n"
            "Bytes are UTF-8 bytes of text: separators and role tokens count in the nats, not in the bytes.\n",
            "## Corpus\n",
            *(part for run in runs for part in (_composition(run["sources"]), "")),
            _TAIL,
        ]
    )


def write_card(out: Path) -> None:
    """Write ``README.md`` beside the model in ``out``.

    Raises:
        InputError: the folder lacks the summary of a finished run.
    """
    if not (out / SUMMARY).is_file():
        raise InputError(f"{out / SUMMARY} is missing: the card needs a finished pre-training run in {out}")
    summary = json.loads((out / SUMMARY).read_text())
    config = json.loads((out / "config.json").read_text())
    (out / "README.md").write_text(card(summary, config))
