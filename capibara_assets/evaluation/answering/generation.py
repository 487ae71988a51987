"""Generate answers in batches: finished rows leave the batch, and waiting prompts take their place.

Continuous batching (Orca, OSDI 2022) over any causal Transformers model with a key-value cache. Prompts are read in
order of length; a prefix that all of them share (a playbook) and a prompt with several samples are prefilled once.
Logits are computed only where a token is chosen. Every sample draws from a random generator of its own, so an answer
is a function of prompt, decoding and seed, whatever else is in the batch; across batches only the last bits of a
float32 sum can differ, which decides between tokens whose logits are closer than that.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from capibara_assets.errors import InputError
from capibara_assets.evaluation.answering.slot_models import StepMasks, keeps_rows_apart, layer_count, token_bytes
from capibara_assets.evaluation.answering.slots import SlotCache
from capibara_assets.evaluation.decoding import Decoding
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.losses import head_logits

Finish = Literal["stop", "length"]
_PREFILL_TOKENS = 2048  # read at once, padding included
_SHORTEST_PREFIX = 16  # tokens in common that are worth a pass of their own


@dataclass(frozen=True)
class Generated:
    """The tokens generated for one sample of a prompt.

    Attributes:
        tokens: without the token that ended it.
        count: tokens chosen, with the one that ended it.
        finish: `stop` where the model ended it, `length` where the budget did.
    """

    tokens: tuple[int, ...]
    count: int
    finish: Finish


@dataclass
class _Row:
    """A sample in the batch: its job, its length in the cache, the tokens chosen so far."""

    job: int
    length: int
    chosen: list[int] = field(default_factory=list)


def stop_ids(base: Base) -> frozenset[int]:
    """Token ids that end an answer: those of the model's generation config and the tokenizer's end of sequence.

    Raises:
        InputError: neither names one.
    """
    config = base.model.generation_config
    named = config.eos_token_id if config is not None else None
    stops = {*(named if isinstance(named, list | tuple) else [named]), base.tokenizer.eos_token_id} - {None, -1}
    if not stops:
        raise InputError(f"{base.path}: no token that ends a text is named: set eos_token_id in generation_config.json")
    return frozenset(int(token) for token in stops if token is not None)


def longest_context(model: nn.Module) -> int | None:
    """Context length of the model in tokens; None where its config does not say."""
    config = model.config.get_text_config()
    return getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)


@dataclass(frozen=True)
class BatchLimits:
    """The size of a batch.

    Attributes:
        rows: samples in the batch, at most.
        cache_mib: memory for keys and values in MiB, at most (a single row is always admitted).
        budgets: tokens of an answer to each prompt, at most `decoding.max_new_tokens`; None: just that.
    """

    rows: int = 32
    cache_mib: int = 1024
    budgets: Sequence[int] | None = None


@dataclass(frozen=True)
class _Sampling:
    """How tokens are chosen, and when an answer ends.

    Attributes:
        budgets: tokens of the answer of each job, at most.
        uniform: random numbers of each job, (jobs, max_new_tokens) in [0, 1); None for greedy decoding.
    """

    decoding: Decoding
    stops: frozenset[int]
    budgets: Sequence[int]
    uniform: np.ndarray | None

    def next_tokens(self, rows: Sequence[_Row], logits: Tensor) -> list[int]:
        """A token for each row; logits (rows, vocabulary)."""
        draws = None
        if self.uniform is not None:
            draws = np.array([self.uniform[row.job, len(row.chosen)] for row in rows])
        return choose(logits, self.decoding, draws)

    def finished(self, row: _Row) -> Generated | None:
        """The answer, where the last token ended it; None: it goes on."""
        chosen = row.chosen
        if chosen[-1] in self.stops:
            return Generated(tuple(chosen[:-1]), len(chosen), "stop")
        if len(chosen) >= self.budgets[row.job]:
            return Generated(tuple(chosen), len(chosen), "length")
        return None


def generate(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    seeds: Sequence[Sequence[int]],
    decoding: Decoding,
    stops: frozenset[int],
    limits: BatchLimits = BatchLimits(),
) -> Iterator[tuple[int, int, Generated]]:
    """Generate samples for prompts; yields (prompt, sample, answer) in the order in which they finish.

    Args:
        model: in eval mode.
        prompts: token ids of each prompt, at least one.
        seeds: for each prompt, one seed per sample that is wanted.
        stops: token ids that end an answer.

    Raises:
        InputError: an empty prompt, or one that leaves no room for the budget in the model's context.
        ValueError: logits that are not finite.
    """
    jobs = [(index, sample) for index, each in enumerate(seeds) for sample in range(len(each))]
    _check(model, prompts, decoding)
    if not jobs:
        return
    own = limits.budgets or [decoding.max_new_tokens] * len(prompts)
    budgets = [min(own[index], decoding.max_new_tokens) for index, _ in jobs]
    sampling = _Sampling(
        decoding, stops, budgets, _uniforms([seeds[index][sample] for index, sample in jobs], decoding)
    )
    if not keeps_rows_apart(model):
        finished = _one_by_one(model, [prompts[index] for index, _ in jobs], sampling)
    else:
        finished = _Batch(model, prompts, jobs, sampling, limits).finished()
    for job, done in finished:
        yield *jobs[job], done


def _check(model: nn.Module, prompts: Sequence[Sequence[int]], decoding: Decoding) -> None:
    most = longest_context(model)
    for index, prompt in enumerate(prompts):
        if not len(prompt):
            raise InputError(f"prompt {index} has no tokens: there is nothing to continue")
        if most is not None and len(prompt) + decoding.max_new_tokens > most:
            raise InputError(
                f"prompt {index} has {len(prompt)} tokens and its answer may have {decoding.max_new_tokens}, but the "
                f"model's context is {most}: leave the item out for every contender, or lower max_new_tokens"
            )


def _uniforms(seeds: Sequence[int], decoding: Decoding) -> np.ndarray | None:
    """The random numbers of each job, (jobs, max_new_tokens) in [0, 1); None for greedy decoding."""
    if decoding.temperature == 0:
        return None
    return np.stack([np.random.Generator(np.random.Philox(seed)).random(decoding.max_new_tokens) for seed in seeds])


class _Batch:
    """Continuous batching: the rows in progress, their slots in the cache, and the waiting prompts."""

    def __init__(
        self,
        model: nn.Module,
        prompts: Sequence[Sequence[int]],
        jobs: Sequence[tuple[int, int]],
        sampling: _Sampling,
        limits: BatchLimits,
    ):
        self._model, self._prompts, self._jobs, self._sampling = model, prompts, jobs, sampling
        self._device = next(model.parameters()).device
        wanted: dict[int, deque[int]] = {}
        for job, (index, _) in enumerate(jobs):
            wanted.setdefault(index, deque()).append(job)
        # longest first: the rows that remain when no prompt waits any more are short
        self._waiting = deque(sorted(wanted.items(), key=lambda each: -len(prompts[each[0]])))
        self._prefix = _common_prefix([prompts[index] for index in wanted])
        capacity = max(len(prompts[index]) for index in wanted) + sampling.decoding.max_new_tokens
        fitting = (limits.cache_mib << 20) // (token_bytes(model) * capacity) - 1
        self._size = max(1, min(limits.rows, len(jobs), fitting))
        # the last slot keeps the common prefix of all prompts
        self._cache = SlotCache(layer_count(model), self._size + 1, capacity)
        self._rows: list[_Row] = []
        self._masks = StepMasks(model)

    def finished(self) -> Iterator[tuple[int, Generated]]:
        """(job, answer) as the jobs finish."""
        if self._prefix:
            self._read(self._size, [self._prompts[self._waiting[0][0]][: self._prefix]], 0)
        while self._waiting or self._rows:
            free = self._size - len(self._rows)
            if self._waiting and (not self._rows or free >= max(1, self._size // 4)):
                yield from self._admit()
            else:
                yield from self._advance(len(self._rows), self._step())

    def _admit(self) -> Iterator[tuple[int, Generated]]:
        """Prefill as many waiting prompts as there is room for, and choose their first tokens."""
        first = len(self._rows)
        free, prompts = self._size - first, list[tuple[int, list[int]]]()
        longest = len(self._prompts[self._waiting[0][0]]) - self._prefix
        while self._waiting and free and longest * (len(prompts) + 1) <= max(_PREFILL_TOKENS, longest):
            index, jobs = self._waiting[0]
            admitted = [jobs.popleft() for _ in range(min(free, len(jobs)))]
            prompts.append((index, admitted))
            free -= len(admitted)
            if not jobs:
                self._waiting.popleft()
        logits = self._read(first, [self._prompts[index][self._prefix :] for index, _ in prompts], self._prefix)
        leaders = list(range(first, first + len(prompts)))
        self._rows += [_Row(own[0], len(self._prompts[index])) for index, own in prompts]
        owners = list(range(len(prompts)))
        for leader, (index, own) in zip(leaders, prompts, strict=True):
            if more := own[1:]:
                here = range(len(self._rows), len(self._rows) + len(more))
                self._cache.fork(leader, here, len(self._prompts[index]))
                self._rows += [_Row(job, len(self._prompts[index])) for job in more]
                owners += [leader - first] * len(more)
        yield from self._advance(len(owners), logits[torch.tensor(owners, device=self._device)])

    @torch.inference_mode()  # type: ignore[untyped-decorator]  # torch is untyped here
    def _read(self, row: int, prompts: Sequence[Sequence[int]], start: int) -> Tensor:
        """Prefill prompts into the slots from `row` on; returns the logits after each prompt, (prompts, vocabulary).

        Args:
            start: number of tokens before these; the slots copy them from the prefix's slot.
        """
        longest = max(map(len, prompts))
        if start:
            self._cache.fork(self._size, range(row, row + len(prompts)), start)
        tokens = torch.zeros((len(prompts), longest), dtype=torch.int64)
        for number, prompt in enumerate(prompts):
            tokens[number, : len(prompt)] = torch.as_tensor(prompt)  # what pads on the right is never seen: causal
        self._cache.prefill(range(row, row + len(prompts)), start)
        hidden = self._model.base_model(
            input_ids=tokens.to(self._device), past_key_values=self._cache, use_cache=True
        ).last_hidden_state
        ends = torch.tensor([len(prompt) - 1 for prompt in prompts], device=self._device)
        return head_logits(self._model, hidden[torch.arange(len(prompts), device=self._device), ends])

    @torch.inference_mode()  # type: ignore[untyped-decorator]  # torch is untyped here
    def _step(self) -> Tensor:
        """Run the last token of every row through the model; returns the logits after it, (rows, vocabulary)."""
        lengths = [row.length for row in self._rows]
        longest = max(lengths) + 1
        tokens = torch.tensor([[row.chosen[-1]] for row in self._rows], device=self._device)
        ends = torch.tensor(lengths, device=self._device)
        self._cache.decode(torch.arange(len(lengths), device=self._device), ends, longest)
        hidden = self._model.base_model(
            input_ids=tokens,
            position_ids=ends[:, None],
            attention_mask=self._masks.masks(ends, longest),
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state
        for row in self._rows:
            row.length += 1
        return head_logits(self._model, hidden[:, -1])

    def _advance(self, count: int, logits: Tensor) -> Iterator[tuple[int, Generated]]:
        """Choose a token for each of the last `count` rows, and remove the rows that are finished."""
        rows = self._rows[len(self._rows) - count :]
        for row, token in zip(rows, self._sampling.next_tokens(rows, logits), strict=True):
            row.chosen.append(token)
        for number in reversed(range(len(self._rows) - count, len(self._rows))):
            row = self._rows[number]
            if (done := self._sampling.finished(row)) is not None:
                last = len(self._rows) - 1
                self._cache.remove(number, last, self._rows[last].length)
                self._rows[number] = self._rows[last]
                self._rows.pop()
                yield row.job, done


def choose(logits: Tensor, decoding: Decoding, draws: np.ndarray | None) -> list[int]:
    """Choose a token for every row: the likeliest one, or by nucleus sampling.

    Args:
        logits: (rows, vocabulary).
        draws: a number in [0, 1) per row; not used at temperature 0.

    Raises:
        ValueError: logits that are not finite.
    """
    best, tokens = logits.max(dim=-1)  # the lowest of equals, as argmax
    if not bool(torch.isfinite(best).all()):
        raise ValueError(
            "the model's logits are not finite: its weights, or its adapter's, hold NaN or overflow (`capibara "
            "debug-model` says where)"
        )
    if decoding.temperature == 0 or draws is None:
        return [int(token) for token in tokens.tolist()]
    # nucleus sampling (arXiv 1904.09751): sums in float64, ties by the lower token
    values, order = torch.sort(logits.double() / decoding.temperature, dim=-1, descending=True, stable=True)
    sums = torch.softmax(values, dim=-1).cumsum(dim=-1)
    kept = (sums < decoding.top_p).sum(dim=-1).clamp(max=sums.shape[1] - 1)  # the last of them reaches top_p
    mass = sums.gather(1, kept[:, None])
    at = torch.searchsorted(sums, torch.as_tensor(draws, device=logits.device)[:, None] * mass, right=True)
    return [int(token) for token in order.gather(1, torch.minimum(at, kept[:, None]))[:, 0].tolist()]


def _one_by_one(
    model: nn.Module, prompts: Sequence[Sequence[int]], sampling: _Sampling
) -> Iterator[tuple[int, Generated]]:
    """Decode job after job with the cache that the model makes itself, such as the states of a Mamba."""
    device = next(model.parameters()).device
    for job, prompt in enumerate(prompts):
        row, done = _Row(job, len(prompt)), None
        tokens, kept = torch.as_tensor([list(prompt)], device=device), dict[str, Any]()
        while done is None:
            with torch.inference_mode():
                output = model(input_ids=tokens, use_cache=True, **kept)
            row.chosen += sampling.next_tokens([row], output.logits[:, -1].float())
            kept = {name: output[name] for name in ("past_key_values", "cache_params") if output.get(name) is not None}
            if not kept:
                raise InputError(f"{type(model).__name__} keeps no cache that is known here: it cannot be evaluated")
            done = sampling.finished(row)
            tokens = torch.as_tensor([row.chosen[-1:]], device=device)
        yield job, done


def _common_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """Length of the common prefix of all prompts, 0 where too short; each prompt keeps a token of its own."""
    if len(prompts) < 2:
        return 0
    ordered = sorted(list(prompt) for prompt in prompts)
    low, high = ordered[0], ordered[-1]
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    same = min(same, min(map(len, prompts)) - 1)
    return same if same >= _SHORTEST_PREFIX else 0
