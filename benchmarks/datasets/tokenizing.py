"""The bench `tokenize`: tokens, masks and packs beside the bare tokenizers library on the same text."""

import json
import os
import re
import statistics
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.experience_input import BenchInput, bench_input
from benchmarks.output import print_result
from benchmarks.timing import timed

VOCABULARY = 32_000
SIDES = ("bare", "ours", "without_offsets", "written")
TOKENIZER, EXAMPLES = "tokenizer", "examples.parquet"
_TRAINING_BYTES = 24_000_000  # of Python's own library, beside the examples, for the vocabulary
_GRID = (0, 16_384, 4_096, 1_024)  # texts a call of the library's encode_batch; 0: all at once
_NAME = re.compile(r"\b[a-z_][a-z0-9_]{3,}\b")
_NUMBER = re.compile(r"(?<![\w.])\d{1,6}(?![\w.])")
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@click.command("tokenize")
@click.option("--experience", help="Folder of experience; default: ../shared where it is, else what ships.")
@click.option("--examples", default=15_000, show_default=True, help="Examples, perturbed copies of the real ones.")
@click.option("--repeats", default=5, show_default=True)
@click.option("--max-length", default=2048, show_default=True, help="Tokens of a pack; longer examples are left out.")
@click.option("--tokenizer", help="Folder of a tokenizer with a chat template; default: one trained here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def tokenize(
    experience: str | None, examples: int, repeats: int, max_length: int, tokenizer: str | None, as_json: bool
) -> None:
    """Tokenising with masks and packing beside tokenizers' encode_batch on the same rendered text, interleaved."""
    given = bench_input(experience, None)
    print_result(measure(given, examples, repeats, max_length, tokenizer), as_json)


def measure(given: BenchInput, count: int, repeats: int, max_length: int, folder: str | None) -> dict[str, Any]:
    """The figures, as `python -m benchmarks tokenize --json` prints them.

    `speed_ratio` is against `encode_batch`, `without_offsets_ratio` against `encode_batch_fast`, which cannot tell
    where a token stands; neither reads the ids out. `ours` reads the messages, renders, encodes, labels and packs.
    Every run has a process of its own: what ran before in a process (the other side, too) leaves the allocator in a
    state that moves the next run by a tenth.
    """
    import polars as pl

    originals = example_messages(given.folder)
    tokenizer, named = load_tokenizer(folder) if folder else trained_tokenizer(originals)
    conversations = [perturbed(originals[i % len(originals)], i // len(originals)) for i in range(count)]
    with TemporaryDirectory() as home:
        tokenizer.save_pretrained(Path(home) / TOKENIZER)
        pl.DataFrame(
            {
                "example_id": [f"e{i:07d}" for i in range(count)],
                "messages": [json.dumps(messages, ensure_ascii=False) for messages in conversations],
                "text": [str(tokenizer.apply_chat_template(messages, tokenize=False)) for messages in conversations],
            }
        ).write_parquet(Path(home) / EXAMPLES)
        calls = {batch: in_process(home, "bare", batch, max_length)["wall_s"] for batch in _GRID}
        best = min(calls, key=lambda batch: calls[batch])
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
        for turn in range(repeats):
            for side in SIDES if turn % 2 == 0 else reversed(SIDES):
                runs[side].append(in_process(home, side, best, max_length))
        counts = in_process(home, "counts", best, max_length)
    bare_s = statistics.median(run["wall_s"] for run in runs["bare"])
    return {
        "speed_ratio": ratio(runs["bare"], runs["ours"], "wall_s"),
        "speed_ratio_range": spread(runs["bare"], runs["ours"], "wall_s"),
        "cpu_ratio": ratio(runs["bare"], runs["ours"], "cpu_s"),
        "cpu_ratio_range": spread(runs["bare"], runs["ours"], "cpu_s"),
        "without_offsets_ratio": ratio(runs["without_offsets"], runs["ours"], "wall_s"),
        "without_offsets_cpu_ratio": ratio(runs["without_offsets"], runs["ours"], "cpu_s"),
        "with_writing_ratio": ratio(runs["bare"], runs["written"], "wall_s"),
        **counts,
        "examples": count,
        "originals": len(originals),
        "bare_tokens_per_s": round(counts["tokens"] / bare_s),
        "bare_s": round(bare_s, 3),
        "ours_s": round(statistics.median(run["wall_s"] for run in runs["ours"]), 3),
        "bare_texts_a_call": best or count,
        "grid_s": {str(batch or count): round(seconds, 3) for batch, seconds in calls.items()},
        "repeats": repeats,
        "max_length": max_length,
        "experience": given.name,
        "tokenizer": named,
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in ("tokenizers", "transformers", "pyarrow", "numpy")},
    }


def in_process(home: str, side: str, batch: int, max_length: int) -> dict[str, Any]:
    """What `run_side` prints, in a process of its own."""
    code = "import sys; from benchmarks.datasets.tokenizing import run_side; run_side(*sys.argv[1:])"
    command = [sys.executable, "-c", code, home, side, str(batch), str(max_length)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def run_side(home: str, side: str, batch_size: str, longest: str) -> None:
    """The child's part: one run that is not counted, then the median of three; prints JSON."""
    import polars as pl
    from transformers import AutoTokenizer

    from capibara_assets.datasets.tokens.packing import pack_lengths
    from capibara_assets.datasets.tokens.preprocessing import DataPreprocessor

    frame, batch, max_length = pl.read_parquet(Path(home) / EXAMPLES), int(batch_size), int(longest)
    tokenizer = AutoTokenizer.from_pretrained(Path(home) / TOKENIZER, local_files_only=True)
    backend, texts = tokenizer.backend_tokenizer, frame["text"].to_list()
    frame = frame.drop("text")
    preprocessor = DataPreprocessor(tokenizer, max_length, on_fault="leave_out")

    def bare(encode: Callable[..., Any]) -> None:
        size = batch or len(texts)
        for start in range(0, len(texts), size):
            encode(texts[start : start + size], add_special_tokens=False)

    def ours() -> None:
        pack_lengths(preprocessor.preprocess(frame).lengths, max_length)

    def written() -> None:
        with TemporaryDirectory() as folder:
            done = preprocessor.preprocess(frame, Path(folder), dataset_digest="bench")
            pack_lengths(done.lengths, max_length)

    if side == "counts":
        done = preprocessor.preprocess(frame)
        packs = pack_lengths(done.lengths, max_length)
        packing_s = timed(lambda: pack_lengths(done.lengths, max_length))["wall_s"]
        of_text = dict(zip(frame["example_id"], texts, strict=True))
        expected = backend.encode_batch([of_text[name] for name in done.example_ids], add_special_tokens=False)
        result = {
            "packing_efficiency": round(packs.efficiency, 5),
            "packs": len(packs),
            "packing_s": round(packing_s, 4),
            "left_out": done.audit["left_out"],
            "tokens": done.audit["tokens"],
            "characters": sum(map(len, texts)),
            "same_tokens": all(each.ids == done.tokens(i)[0].tolist() for i, each in enumerate(expected)),
            "supervised_share": done.audit["supervised_share"],
        }
    else:
        sides: dict[str, Callable[[], None]] = {
            "bare": partial(bare, backend.encode_batch),
            "without_offsets": partial(bare, backend.encode_batch_fast),
            "ours": ours,
            "written": written,
        }
        sides[side]()
        timings = [timed(sides[side]) for _ in range(3)]
        result = {key: statistics.median(each[key] for each in timings) for key in ("wall_s", "cpu_s")}
    sys.stdout.write(json.dumps(result) + "\n")


def ratios(bare: list[dict[str, float]], ours: list[dict[str, float]], key: str) -> list[float]:
    """The library's seconds over ours, pair by pair: 1 is its own speed, above is faster."""
    return [theirs[key] / mine[key] for theirs, mine in zip(bare, ours, strict=True)]


def ratio(bare: list[dict[str, float]], ours: list[dict[str, float]], key: str) -> float:
    return round(statistics.median(ratios(bare, ours, key)), 4)


def spread(bare: list[dict[str, float]], ours: list[dict[str, float]], key: str) -> list[float]:
    found = ratios(bare, ours, key)
    return [round(min(found), 4), round(max(found), 4)]


def example_messages(folder: Path) -> list[list[dict[str, str]]]:
    """The messages of every domain's examples, built from a folder of experience as the assets build them."""
    import polars as pl

    from capibara_assets.datasets.examples import build_dataset
    from capibara_assets.datasets.groups import assign_groups
    from capibara_assets.datasets.kinds.evidence import Evidence
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.deployment.declarations import shipped_recipe
    from capibara_assets.domains import DOMAINS
    from capibara_assets.executions.ingest.ingest import read_experience
    from capibara_assets.executions.patterns.extract import extract_patterns
    from capibara_assets.executions.patterns.repairs import find_repairs
    from capibara_assets.executions.recipe import ExperienceRecipe
    from capibara_assets.executions.selection import evidence, in_window, of_domain

    recipe = shipped_recipe("dataset", DatasetRecipe)
    experience = shipped_recipe("experience", ExperienceRecipe)
    executions = read_experience(folder, now=datetime.now(UTC)).executions
    found = {}
    for domain in DOMAINS:
        mine = in_window(of_domain(executions, domain), experience)
        repairs, patterns = find_repairs(mine), extract_patterns(mine, domain, experience)
        found[domain] = Evidence(evidence(mine, repairs, experience), patterns, repairs, pl.DataFrame())
    union = pl.concat([each.executions for each in found.values()]).unique("execution_id")
    repairs = pl.concat([each.repairs for each in found.values()]).unique("pair_id")
    groups = assign_groups(union, repairs, None, recipe)
    tables = [build_dataset(domain, each, groups, recipe).examples for domain, each in found.items()]
    rows = pl.concat([table.select("example_id", "messages") for table in tables]).sort("example_id")
    return [json.loads(messages) for messages in rows["messages"]]


def perturbed(messages: list[dict[str, str]], copy: int) -> list[dict[str, str]]:
    """The messages with a third of their names and all numbers changed, so that no cache has seen the words."""
    known = sorted({name for message in messages for name in _NAME.findall(message["content"])})
    names = {name: f"{name}{(copy * 31 + place) % 9973}" for place, name in enumerate(known) if place % 3 == copy % 3}

    def change(text: str) -> str:
        text = _NAME.sub(lambda match: names.get(match.group(), match.group()), text)
        return _NUMBER.sub(lambda match: str(int(match.group()) + copy), text)

    return [{"role": message["role"], "content": change(message["content"])} for message in messages]


def load_tokenizer(folder: str) -> tuple[Any, str]:
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return found, f"{Path(folder).name} ({len(found)} tokens)"


def trained_tokenizer(originals: list[list[dict[str, str]]]) -> tuple[Any, str]:
    """A byte-level BPE of real size, trained on the examples and on the sources of Python's own library."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    texts, room = [message["content"] for messages in originals for message in messages], _TRAINING_BYTES
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if "site-packages" in path.parts or room < 0:
            continue
        texts.append(path.read_text("utf-8", errors="replace"))
        room -= len(texts[-1])
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(_WORDS), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    model.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=_TEMPLATE
    )
    return tokenizer, f"byte-level BPE trained by the bench ({model.get_vocab_size()} tokens)"
