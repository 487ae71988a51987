"""Answers of a causal language model, many at once: what is done leaves the batch, and what waits takes its place.

Continuous batching (Orca, OSDI 2022) over any causal model of Transformers that keeps keys and values. Prompts come in
order of length; what all of them begin with (a playbook) and a prompt with several samples are read once. Logits are
computed where a token is chosen, nowhere else. Every sample draws from a generator of its own, so that an answer is a
function of prompt, decoding and seed, whatever else is in the batch; across batches only the last bits of a sum of
float32 can differ, which decides between tokens whose logits are closer than that.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from capibara_assets.errors import InputError
from capibara_assets.evaluation.answering.slots import SlotCache
from capibara_assets.evaluation.decoding import Decoding
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.losses import head_logits

Finish = Literal["stop", "length"]
_PREFILL_TOKENS = 2048  # read at once, padding included
_SHORTEST_PREFIX = 16  # tokens in common that are worth a pass of their own
_CACHE_MIB = 1024


@dataclass(frozen=True)
class Generated:
    """What followed a prompt.

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
    """A sample in the batch: its job, its length in the cache, what was chosen so far."""

    job: int
    length: int
    chosen: list[int] = field(default_factory=list)


def stop_ids(base: Base) -> frozenset[int]:
    """The tokens that end an answer: those of the model's generation config and the tokenizer's end of sequence.

    Raises:
        InputError: there is none.
    """
    config = base.model.generation_config
    named = config.eos_token_id if config is not None else None
    found = {*(named if isinstance(named, list | tuple) else [named]), base.tokenizer.eos_token_id} - {None}
    if not found:
        raise InputError(
            f"{base.path}: neither generation_config.json nor the tokenizer names a token that ends a text"
        )
    return frozenset(int(token) for token in found if token is not None)


def longest_context(model: nn.Module) -> int | None:
    """Tokens that the model was made for; None where its config does not say."""
    config = model.config.get_text_config()
    return getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)


def generate(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    seeds: Sequence[Sequence[int]],
    decoding: Decoding,
    stops: frozenset[int],
    *,
    rows: int = 32,
    cache_mib: int = _CACHE_MIB,
) -> Iterator[tuple[int, int, Generated]]:
    """(prompt, sample, what was generated), in the order in which they get done.

    Args:
        model: in eval mode.
        prompts: tokens of each prompt, at least one.
        seeds: of each prompt, one of every sample that is wanted.
        stops: tokens that end an answer.
        rows: samples in the batch, at most.
        cache_mib: memory for keys and values, at most, in MiB (one row is always taken).

    Raises:
        InputError: an empty prompt, or one that leaves no room for the budget in the model's context.
        ValueError: logits that are not finite.
    """
    jobs = [(index, sample) for index, each in enumerate(seeds) for sample in range(len(each))]
    _check(model, prompts, decoding)
    if not jobs:
        return
    uniform = _uniforms([seeds[index][sample] for index, sample in jobs], decoding)
    if not keeps_rows_apart(model):
        finished = _one_by_one(model, [prompts[index] for index, _ in jobs], uniform, decoding, stops)
    else:
        finished = _Batch(model, prompts, jobs, uniform, decoding, stops, rows, cache_mib).finished()
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
    """The rows in progress, the slots they lie in, and the prompts that wait."""

    def __init__(
        self,
        model: nn.Module,
        prompts: Sequence[Sequence[int]],
        jobs: Sequence[tuple[int, int]],
        uniform: np.ndarray | None,
        decoding: Decoding,
        stops: frozenset[int],
        rows: int,
        cache_mib: int,
    ):
        self._model, self._prompts, self._jobs, self._uniform = model, prompts, jobs, uniform
        self._decoding, self._stops = decoding, stops
        self._device = next(model.parameters()).device
        wanted: dict[int, deque[int]] = {}
        for job, (index, _) in enumerate(jobs):
            wanted.setdefault(index, deque()).append(job)
        # longest first: what is left at the end, when no prompt waits any more, is short
        self._waiting = deque(sorted(wanted.items(), key=lambda each: -len(prompts[each[0]])))
        self._prefix = _common_prefix([prompts[index] for index in wanted])
        capacity = max(len(prompts[index]) for index in wanted) + decoding.max_new_tokens
        fitting = (cache_mib << 20) // (_token_bytes(model) * capacity) - 1
        self._size = max(1, min(rows, len(jobs), fitting))
        # the last slot keeps what all prompts begin with
        self._cache = SlotCache(_layers(model), self._size + 1, capacity)
        self._rows: list[_Row] = []
        self._windows = _Windows(model)

    def finished(self) -> Iterator[tuple[int, Generated]]:
        if self._prefix:
            self._read(self._size, [self._prompts[self._waiting[0][0]][: self._prefix]], 0)
        while self._waiting or self._rows:
            free = self._size - len(self._rows)
            if self._waiting and (not self._rows or free >= max(1, self._size // 4)):
                yield from self._admit()
            else:
                yield from self._settle(len(self._rows), self._step())

    def _admit(self) -> Iterator[tuple[int, Generated]]:
        """Read as many of the waiting prompts as there is room for, and choose their first tokens."""
        first = len(self._rows)
        free, prompts = self._size - first, list[tuple[int, list[int]]]()
        longest = len(self._prompts[self._waiting[0][0]]) - self._prefix
        while self._waiting and free and longest * (len(prompts) + 1) <= max(_PREFILL_TOKENS, longest):
            index, jobs = self._waiting[0]
            taken = [jobs.popleft() for _ in range(min(free, len(jobs)))]
            prompts.append((index, taken))
            free -= len(taken)
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
        yield from self._settle(len(owners), logits[torch.tensor(owners, device=self._device)])

    @torch.inference_mode()  # type: ignore[untyped-decorator]  # torch is untyped here
    def _read(self, row: int, prompts: Sequence[Sequence[int]], start: int) -> Tensor:
        """Pass prompts through the model into the slots from `row` on; the logits after each, (prompts, vocabulary).

        Args:
            start: how many tokens come before these: the slots get them from the last one.
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
        """One more token of every row through the model; the logits after it, (rows, vocabulary)."""
        lengths = [row.length for row in self._rows]
        longest = max(lengths) + 1
        tokens = torch.tensor([[row.chosen[-1]] for row in self._rows], device=self._device)
        ends = torch.tensor(lengths, device=self._device)
        self._cache.decode(torch.arange(len(lengths), device=self._device), ends, longest)
        hidden = self._model.base_model(
            input_ids=tokens,
            position_ids=ends[:, None],
            attention_mask=self._windows.masks(ends, longest),
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state
        for row in self._rows:
            row.length += 1
        return head_logits(self._model, hidden[:, -1])

    def _settle(self, count: int, logits: Tensor) -> Iterator[tuple[int, Generated]]:
        """Choose a token for each of the last `count` rows; those that are done leave."""
        rows = self._rows[len(self._rows) - count :]
        for row, token in zip(rows, self._choose(rows, logits), strict=True):
            row.chosen.append(token)
        for number in reversed(range(len(self._rows) - count, len(self._rows))):
            row = self._rows[number]
            if (done := _done(row.chosen, self._decoding, self._stops)) is not None:
                last = len(self._rows) - 1
                self._cache.take_out(number, last, self._rows[last].length)
                self._rows[number] = self._rows[last]
                self._rows.pop()
                yield row.job, done

    def _choose(self, rows: Sequence[_Row], logits: Tensor) -> list[int]:
        draws = None
        if self._uniform is not None:
            draws = np.array([self._uniform[row.job, len(row.chosen)] for row in rows])
        return choose(logits, self._decoding, draws)


def choose(logits: Tensor, decoding: Decoding, draws: np.ndarray | None) -> list[int]:
    """A token for every row.

    Args:
        logits: (rows, vocabulary).
        draws: a number in [0, 1) per row; not used at temperature 0.

    Raises:
        ValueError: logits that are not finite.
    """
    best, tokens = logits.max(dim=-1)  # the lowest of equals, as argmax
    if not bool(torch.isfinite(best).all()):
        raise ValueError(
            "the model's logits are not finite: its weights hold NaN or overflow (`capibara debug-model` says where)"
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


def _done(chosen: Sequence[int], decoding: Decoding, stops: frozenset[int]) -> Generated | None:
    if chosen[-1] in stops:
        return Generated(tuple(chosen[:-1]), len(chosen), "stop")
    if len(chosen) >= decoding.max_new_tokens:
        return Generated(tuple(chosen), len(chosen), "length")
    return None


def _one_by_one(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    uniform: np.ndarray | None,
    decoding: Decoding,
    stops: frozenset[int],
) -> Iterator[tuple[int, Generated]]:
    """For models that keep something else than keys and values (states, other masks): the cache that they make."""
    device = next(model.parameters()).device
    for job, prompt in enumerate(prompts):
        chosen: list[int] = []
        tokens, kept, done = torch.as_tensor([list(prompt)], device=device), dict[str, Any](), None
        while done is None:
            with torch.inference_mode():
                found = model(input_ids=tokens, use_cache=True, **kept)
            draws = None if uniform is None else uniform[job, len(chosen)][None]
            chosen += choose(found.logits[:, -1].float(), decoding, draws)
            kept = {name: found[name] for name in ("past_key_values", "cache_params") if found.get(name) is not None}
            if not kept:
                raise InputError(f"{type(model).__name__} keeps nothing between tokens that is known here")
            done = _done(chosen, decoding, stops)
            tokens = torch.as_tensor([chosen[-1:]], device=device)
        yield job, done


class _Windows:
    """Masks of a step: what each row sees of the slots; by kind of layer where a model has several."""

    def __init__(self, model: nn.Module):
        config = model.config.get_text_config()
        self._additive = config._attn_implementation not in ("sdpa",)
        self._dtype = next(model.parameters()).dtype
        window = getattr(config, "sliding_window", None)
        if getattr(config, "use_sliding_window", True) is False:
            window = None
        kinds = set(getattr(config, "layer_types", None) or [])
        self._window = window
        self._kinds = kinds if "sliding_attention" in kinds else set()

    def masks(self, ends: Tensor, longest: int) -> Any:
        """(rows, 1, 1, longest), or one by kind of layer."""
        places = torch.arange(longest, device=ends.device)[None]
        seen = places <= ends[:, None]
        if not self._window:
            return self._shaped(seen)
        near = seen & (places > ends[:, None] - self._window)
        if not self._kinds:
            return self._shaped(near)
        return {kind: self._shaped(near if kind == "sliding_attention" else seen) for kind in self._kinds}

    def _shaped(self, seen: Tensor) -> Tensor:
        seen = seen[:, None, None]
        if not self._additive:
            return seen
        lowest = torch.finfo(self._dtype).min
        return torch.where(seen, 0.0, lowest).to(self._dtype)


@torch.inference_mode()  # type: ignore[untyped-decorator]  # torch is untyped here
def keeps_rows_apart(model: nn.Module) -> bool:
    """Whether rows of different lengths can share a batch in slots: tried on a few tokens against whole passes.

    Models with states in place of keys and values, or with masks of another form, cannot; they answer one by one.
    """
    probes = [[3, 5, 7, 2, 4, 6, 1, 8, 3], [9, 4, 7], [6, 2, 8, 3, 1]]
    probes = [[token % model.config.get_text_config().vocab_size for token in probe] for probe in probes]
    device = next(model.parameters()).device
    try:
        cache, lengths = SlotCache(_layers(model), 3, 10), [len(probe) - 1 for probe in probes]
        for row, probe in enumerate(probes):
            cache.prefill(range(row, row + 1), 0)
            model.base_model(input_ids=torch.tensor([probe[:-1]], device=device), past_key_values=cache, use_cache=True)
        ends = torch.tensor(lengths, device=device)
        cache.decode(torch.arange(3, device=device), ends, max(lengths) + 1)
        hidden = model.base_model(
            input_ids=torch.tensor([probe[-1:] for probe in probes], device=device),
            position_ids=ends[:, None],
            attention_mask=_Windows(model).masks(ends, max(lengths) + 1),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        found = head_logits(model, hidden[:, -1])
    except (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return False  # it calls for another kind of cache: that is what is asked here
    for row, probe in enumerate(probes):
        whole = model(input_ids=torch.tensor([probe], device=device), use_cache=False).logits[0, -1].float()
        near = 1e-3 if whole.dtype == next(model.parameters()).dtype else 5e-2
        if not torch.allclose(found[row], whole, rtol=0, atol=near * float(whole.abs().max())):
            return False
    return True


def _common_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """Tokens that all prompts begin with, 0 where too few; each keeps one of its own."""
    if len(prompts) < 2:
        return 0
    ordered = sorted(list(prompt) for prompt in prompts)
    low, high = ordered[0], ordered[-1]
    same = next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    same = min(same, min(map(len, prompts)) - 1)
    return same if same >= _SHORTEST_PREFIX else 0


def _layers(model: nn.Module) -> int:
    return int(model.config.get_text_config().num_hidden_layers)


def _token_bytes(model: nn.Module) -> int:
    """Bytes of keys and values per token, from the config."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * _layers(model) * heads * width * next(model.parameters()).element_size())
