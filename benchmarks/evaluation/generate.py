"""The bench `evaluate`, generation: our batches beside Transformers' own batched `generate`, the same tokens out.

Both sides get the shipped base in float32, the same prompts and budget, greedy, the same threads, in one process, by
turns. Transformers' side is padded on the left and runs at the best of a small grid of batch sizes, with prompts in
order of length, which is what it gains most from. Its `generate_batch` is not in the grid: it is made for GPUs, and did
not finish a handful of prompts in two minutes on a processor.
"""

import hashlib
import os
import statistics
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from benchmarks.experience_input import bench_input
from benchmarks.timing import timed
from capibara_assets.deployment.locations import resources_root

NANO = resources_root() / "base_models" / "capibara-nano"
BATCH_SIZES = (8, 16, 32, 64)
FINALISTS = 2
ROUNDS = 5
PROMPTS, LONGEST_PROMPT, NEW_TOKENS = 64, 512, 64

Tokens = list[list[int]]


def run_generation(
    experience: str | None = None, *, prompts: int = PROMPTS, new_tokens: int = NEW_TOKENS, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Tokens per second of both sides; `batched_ratio` is ours over the better of the peer's two best batch sizes.

    Args:
        experience: folder whose recorded cells are asked about; as in `bench_input`.
        prompts: how many of them.
        new_tokens: budget of an answer.
        rounds: interleaved runs of each side.
    """
    import torch
    import transformers

    from capibara_assets.modeling.base import load_base

    given = bench_input(experience, None)
    base = load_base(NANO)
    asked = _prompts(base, given.folder, prompts)
    ours, peer = _ours(base, asked, new_tokens), _peer(base, asked, new_tokens)
    found: dict[str, Tokens] = {}
    for name, work in (("ours", ours), *((_named(size), peer(size)) for size in BATCH_SIZES)):
        found[name] = work()  # warm
    grid = {_named(size): timed(peer(size))["wall_s"] for size in BATCH_SIZES}
    finalists = sorted(grid, key=lambda name: grid[name])[:FINALISTS]
    sizes = {_named(size): size for size in BATCH_SIZES}
    sides: dict[str, Callable[[], object]] = {"ours": ours, **{name: peer(sizes[name]) for name in finalists}}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(rounds):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        for name in order:
            runs[name].append(timed(sides[name]))
    best = min(finalists, key=lambda name: statistics.median(run["wall_s"] for run in runs[name]))
    tokens = sum(map(len, found["ours"]))
    return {
        "batched_ratio": _ratio(runs, best, "wall_s"),
        "batched_ratio_cpu": _ratio(runs, best, "cpu_s"),
        "ratio_by_round": [
            round(theirs["wall_s"] / own["wall_s"], 3) for own, theirs in zip(runs["ours"], runs[best], strict=True)
        ],
        "answers_equal": found["ours"] == found[best],
        "answers_equal_by_batch_size": {
            name: sum(a == b for a, b in zip(found["ours"], theirs, strict=True)) for name, theirs in found.items()
        },
        "tokens_per_second": {name: _speed(each, tokens) for name, each in runs.items()},
        "best_peer": best,
        "grid_wall_s": {name: round(seconds, 3) for name, seconds in grid.items()},
        "prompts": len(asked),
        "prompt_tokens": sum(map(len, asked)),
        "answer_tokens": tokens,
        "stopped_by_the_model": sum(len(each) < new_tokens for each in found["ours"]),
        "new_tokens": new_tokens,
        "rounds": rounds,
        "experience": given.name,
        "precision": "fp32",
        "threads": torch.get_num_threads(),
        "load_average": round(os.getloadavg()[0], 2),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _prompts(base: Any, folder: Any, most: int) -> Tokens:
    """Recorded cells as the dataset's prompts ask about them (predict, explain), those with the smallest digests."""
    from capibara_assets.datasets.kinds.prompts import explain, predict
    from capibara_assets.evaluation.answering.answer import prompt_tokens
    from capibara_assets.executions.ingest.ingest import read_experience

    cells = read_experience(folder, now=datetime.now(UTC)).executions.select("language", "code").unique().rows()
    ranked = sorted(cells, key=lambda cell: hashlib.sha256(repr(cell).encode()).hexdigest())[: 2 * most]
    texts = [
        explain(language, code, "Show it for one call.") if number % 2 else predict(language, code, [])
        for number, (language, code) in enumerate(ranked)
    ]
    tokens = prompt_tokens(base, [[{"role": "user", "content": text}] for text in texts])
    return [each for each in tokens if len(each) <= LONGEST_PROMPT][:most]


def _ours(base: Any, prompts: Tokens, new_tokens: int) -> Callable[[], Tokens]:
    from capibara_assets.evaluation.answering.generation import generate, stop_ids
    from capibara_assets.evaluation.decoding import Decoding
    from capibara_assets.modeling.cpu.column_major import column_major

    stops, decoding = stop_ids(base), Decoding(max_new_tokens=new_tokens)

    def work() -> Tokens:
        found: Tokens = [[] for _ in prompts]
        with column_major(base.model):
            for index, _, done in generate(base.model, prompts, [[0]] * len(prompts), decoding, stops):
                found[index] = list(done.tokens)
        return found

    return work


def _peer(base: Any, prompts: Tokens, new_tokens: int) -> Callable[[int], Callable[[], Tokens]]:
    """Transformers' own, by batch size."""
    from capibara_assets.evaluation.answering.generation import stop_ids

    stops, pad = sorted(stop_ids(base)), base.tokenizer.pad_token_id

    def of_size(size: int) -> Callable[[], Tokens]:
        order = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]))
        batches = [order[start : start + size] for start in range(0, len(order), size)]

        def work() -> Tokens:
            found: Tokens = [[] for _ in prompts]
            for batch in batches:
                for index, tokens in zip(batch, _generated(base, [prompts[i] for i in batch]), strict=True):
                    end = next((at for at, token in enumerate(tokens) if token in stops), len(tokens))
                    found[index] = tokens[:end]
            return found

        return work

    def _generated(base: Any, rows: Sequence[Sequence[int]]) -> Tokens:
        import torch

        longest = max(map(len, rows))
        ids = torch.tensor([[pad] * (longest - len(row)) + list(row) for row in rows])
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        with torch.inference_mode():
            found = base.model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=False,
                max_new_tokens=new_tokens,
                eos_token_id=stops,
                pad_token_id=pad,
            )
        tokens: Tokens = found[:, longest:].tolist()
        return tokens

    return of_size


def _named(size: int) -> str:
    return f"transformers, batches of {size}"


def _ratio(runs: dict[str, list[dict[str, float]]], peer: str, clock: str) -> float:
    return round(
        statistics.median(run[clock] for run in runs[peer]) / statistics.median(run[clock] for run in runs["ours"]), 3
    )


def _speed(runs: Sequence[dict[str, float]], tokens: int) -> dict[str, float]:
    speeds = sorted(tokens / run["wall_s"] for run in runs)
    return {
        "median": round(statistics.median(speeds), 1),
        "lowest": round(speeds[0], 1),
        "highest": round(speeds[-1], 1),
        "cpu_s": round(statistics.median(run["cpu_s"] for run in runs), 2),
    }
