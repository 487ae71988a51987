"""Export of a dataset as JSON lines for other trainers: rendered text, messages, or prompt and completion."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from capibara_assets.datasets.layout import data_folder
from capibara_assets.datasets.schema import SPLITS
from capibara_assets.datasets.tokens.chat_forms import render_mistral
from capibara_assets.errors import InputError
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets.storage.jsonfiles import write_bytes_atomic
from capibara_assets.storage.mirror import is_remote, upload

Messages = Sequence[Mapping[str, str]]
Render = Callable[[Messages], str]
ABOUT = "dataset.json"


def text_line(messages: Messages, render: Render = render_mistral) -> dict[str, Any]:
    """A line `{"text": ...}`, by default in the Mistral form.

    Raises:
        Fault: the form cannot hold these messages.
    """
    return {"text": render(messages)}


def messages_line(messages: Messages) -> dict[str, Any]:
    """A line `{"messages": [{role, content}, ...]}`."""
    return {"messages": [{"role": m["role"], "content": m["content"]} for m in messages]}


def prompt_completion_line(messages: Messages) -> dict[str, Any]:
    """A line `{"prompt": ..., "completion": ...}`: texts for one question, message lists for a longer conversation."""
    if [m["role"] for m in messages] == ["user", "assistant"]:
        return {"prompt": messages[0]["content"], "completion": messages[1]["content"]}
    listed = messages_line(messages)["messages"]
    return {"prompt": listed[:-1], "completion": listed[-1:]}


def export_dataset(
    examples: pl.DataFrame,
    folder: Path,
    line_of: Callable[[Messages], dict[str, Any]],
    about: Mapping[str, Any],
    *,
    weights: bool = False,
) -> dict[str, Any]:
    """Write `<split>.jsonl`, and `dataset.json` with counts, licences, sources and the examples left out.

    Args:
        examples: a table Example.
        line_of: one of the functions above.
        about: further fields of `dataset.json`.
        weights: each line also has `weight`: of its cluster times that of its difficulty.

    Returns:
        The content of `dataset.json`.

    Raises:
        InputError: the folder holds an export already.
    """
    names = [f"{split}.jsonl" for split in SPLITS]
    existing = [name for name in (*names, ABOUT) if (folder / name).exists()]
    if existing:
        raise InputError(f"{folder} holds {', '.join(existing)} already: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    left_out: dict[str, str] = {}
    written: Counter[str] = Counter()
    for split, name in zip(SPLITS, names, strict=True):
        lines = []
        rows = examples.filter(pl.col("split") == split).sort("example_id")
        weight = (rows["weight"] * rows["balance"]).round(6).to_list() if weights else [None] * rows.height
        for example_id, messages, each in zip(rows["example_id"], rows["messages"], weight, strict=True):
            try:
                line = line_of(json.loads(messages))
            except Fault as fault:
                left_out[example_id] = fault.detail
                continue
            line = line if each is None else line | {"weight": each}
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        written[split] = len(lines)
        write_bytes_atomic(folder / name, "".join(lines).encode("utf-8"))
    summary = {
        **about,
        "examples": dict(written),
        "left_out": left_out,
        "licences": _counted(examples["licence"]),
        "sources": _counted(examples["source"]),
    }
    write_bytes_atomic(folder / ABOUT, json.dumps(summary, indent=2, ensure_ascii=False).encode("utf-8"))
    return summary


def export_to_storage(examples: pl.DataFrame, root: str, domain: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """Export a domain's conversations to where the trainers of its TPU plan read them (`layout.data_folder`).

    An export that lies there is replaced.

    Args:
        root: the plan's storage root, a folder or a gs:// path.
        about: as for `export_dataset`.

    Returns:
        The content of `dataset.json`.

    Raises:
        InputError: the root cannot be opened.
    """
    place = data_folder(root, domain)
    with TemporaryDirectory(prefix="capibara-export-") as folder:
        summary = export_dataset(examples, Path(folder), messages_line, about)
        if is_remote(place):
            upload(Path(folder), place, last=ABOUT)
            return summary
        target = Path(place)
        target.mkdir(parents=True, exist_ok=True)
        for name in (*(f"{split}.jsonl" for split in SPLITS), ABOUT):
            write_bytes_atomic(target / name, (Path(folder) / name).read_bytes())
    return summary


def _counted(values: pl.Series) -> dict[str, int]:
    return dict(sorted(values.fill_null("not stated").value_counts().iter_rows()))
