"""Answer items with a contender: same decoding, seeds and budget for all contenders; interrupted runs resume."""

import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import jinja2
from pydantic import Field

from capibara_assets.datasets.tokens.templates import ChatTemplate
from capibara_assets.datasets.tokens.templates_jinja import refusal
from capibara_assets.errors import InputError
from capibara_assets.evaluation.answering.generation import BatchLimits, generate, longest_context, stop_ids
from capibara_assets.evaluation.answering.journal import AnswerJournal, open_journal
from capibara_assets.evaluation.contenders.contenders import (
    Contender,
    EndpointContender,
    Message,
    ModelContender,
    RoutedContender,
    StoredContender,
    loaded,
)
from capibara_assets.evaluation.contenders.endpoints import client_of, reply
from capibara_assets.evaluation.decoding import Decoding
from capibara_assets.evaluation.report import AnsweringCost
from capibara_assets.modeling.adapters import applied
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.cpu.column_major import column_major
from capibara_assets.processes.progress import tracked
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.jsonfiles import why_not_json
from capibara_assets.storage.records import Record

_CLEAR_PEAK = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


class PromptedItem(Protocol):
    """The part of an item that a contender sees, and its budget."""

    @property
    def item_id(self) -> str: ...

    @property
    def prompt(self) -> Sequence[Message]: ...

    @property
    def reference(self) -> str:
        """The recorded answer, of which only the length counts, for the budget; "" where there is none."""
        ...


class Answer(Record):
    """One answer of a contender to an item."""

    schema_name: ClassVar[str] = "answer"
    schema_version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]] = ("contender", "item_id", "sample")

    contender: str = Field(description="Who answered.")
    item_id: str = Field(description="The item.")
    sample: int = Field(ge=0, description="Number of the sample, from 0.")
    text: str = Field(description="The answer, without the token that ended it.")
    tokens: int | None = Field(description="Tokens chosen, the last included; None: the endpoint did not count them.")
    finish: Literal["stop", "length"] = Field(description="stop: the model ended it; length: the budget did.")


@dataclass(frozen=True)
class Answered:
    """Answers in the order of items, then samples.

    Attributes:
        speed: of those that were generated now; answers from the journal or a file do not count.
    """

    answers: list[Answer]
    speed: AnsweringCost


@dataclass(frozen=True)
class _NewAnswer:
    """An answer just generated, by the positions of its item and sample."""

    item: int
    sample: int
    text: str
    tokens: int | None
    finish: str


def answer_items(
    contender: Contender,
    items: Sequence[PromptedItem],
    decoding: Decoding,
    journal: Path | None = None,
) -> Answered:
    """Answer all items with a contender, `decoding.samples` times each.

    A greedy answer is generated once and counts for every sample. Answers in the journal with the same contender (its
    weights, not its name), prompt and decoding are not generated again.

    Args:
        journal: file to resume from and to append to; several contenders may share it. None: no journal.

    Raises:
        InputError: an item twice; a prompt that leaves no room for the budget; a stored contender without an answer to
            an item; whatever keeps a model from loading or an endpoint from answering.
    """
    ids = [item.item_id for item in items]
    if twice := sorted({name for name in ids if ids.count(name) > 1} if len(set(ids)) < len(ids) else ()):
        raise InputError(f"items that occur twice: {', '.join(twice[:5])}")
    if isinstance(contender, StoredContender):
        return Answered(_stored(contender, items, decoding), AnsweringCost(0, 0, 0.0, None))
    own = contender.identity
    each = range(1 if decoding.temperature == 0 else decoding.samples)
    keys = {(n, sample): _key(own, item, sample, decoding) for n, item in enumerate(items) for sample in each}
    with ExitStack() as stack:
        kept = stack.enter_context(open_journal(journal)) if journal is not None else None
        known = dict(kept.lines) if kept else {}
        missing: dict[int, list[int]] = {}
        for (number, sample), key in keys.items():
            if key not in known:
                missing.setdefault(number, []).append(sample)
        speed = _generate_missing(contender, items, missing, decoding, _AnswerSink(keys, kept, known))
    return Answered(
        [
            _answer(contender.name, item.item_id, sample, known[keys[number, min(sample, each[-1])]])
            for number, item in enumerate(items)
            for sample in range(decoding.samples)
        ],
        speed,
    )


def too_long(contender: Contender, items: Sequence[PromptedItem], decoding: Decoding) -> list[str]:
    """Ids of items whose prompt leaves no room for the budget in the contender's context: left out for all contenders.

    Endpoints are not checked; they refuse such a prompt themselves.
    """
    if not isinstance(contender, ModelContender | RoutedContender):
        return []
    with loaded(contender.model) as base:
        prompts = prompt_tokens(base, [contender.framing.around(item.prompt) for item in items])
        return _without_room(base, items, prompts, decoding)


def _without_room(
    base: Base, items: Sequence[PromptedItem], prompts: Sequence[Sequence[int]], decoding: Decoding
) -> list[str]:
    most = longest_context(base.model)
    asked = zip(items, prompts, strict=True)
    return [item.item_id for item, ids in asked if most is not None and len(ids) + decoding.max_new_tokens > most]


def prompt_tokens(base: Base, conversations: Sequence[Sequence[Message]]) -> list[list[int]]:
    """Token ids of conversations up to the assistant's turn, by the model's own chat template.

    Raises:
        InputError: the tokenizer has no template, or it refuses a conversation; a text is not Unicode.
    """
    template = ChatTemplate(base.tokenizer).jinja
    try:
        texts = [
            template.text_of([dict(message) for message in messages], generation_prompt=True)
            for messages in conversations
        ]
    except jinja2.TemplateError as error:
        roles = sorted({message["role"] for messages in conversations for message in messages})
        raise refusal(roles, error) from error
    if not texts:
        return []
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError as error:  # which tokenizers take for no text
        raise InputError(f"a prompt is {why_not_json(error)}") from error
    encoded: Any = base.tokenizer(texts, add_special_tokens=False, verbose=False)
    return [list(ids) for ids in encoded["input_ids"]]


def seed_of(decoding: Decoding, item_id: str, sample: int) -> int:
    """The seed of one answer, the same for every contender."""
    return int(sha256_bytes(f"{decoding.seed}/{item_id}/{sample}".encode())[:15], 16)


def _key(own: str, item: PromptedItem, sample: int, decoding: Decoding) -> str:
    chosen = decoding.model_dump(exclude={"samples"})  # a later run may ask for more samples
    chosen["max_new_tokens"] = decoding.budget(item.reference)
    prompt = [dict(message) for message in item.prompt]
    return sha256_bytes(canonical_json([own, item.item_id, prompt, sample, chosen]))


def _answer(name: str, item_id: str, sample: int, line: Mapping[str, Any]) -> Answer:
    return Answer(
        contender=name,
        item_id=item_id,
        sample=sample,
        text=line["text"],
        tokens=line["tokens"],
        finish=line["finish"],
    )


@dataclass(frozen=True)
class _AnswerSink:
    """Records answers under their keys, in memory and in the journal.

    Attributes:
        keys: (number of the item, sample) -> key of its line.
        known: key -> line, of all answers so far.
    """

    keys: Mapping[tuple[int, int], str]
    journal: AnswerJournal | None
    known: dict[str, Mapping[str, Any]]

    def record(self, item: int, sample: int, line: Mapping[str, Any]) -> None:
        key = self.keys[item, sample]
        if self.journal is not None:
            self.journal.append(key, line)
        self.known[key] = line


def _generate_missing(
    contender: ModelContender | RoutedContender | EndpointContender,
    items: Sequence[PromptedItem],
    missing: Mapping[int, Sequence[int]],
    decoding: Decoding,
    sink: _AnswerSink,
) -> AnsweringCost:
    """Generate the missing answers, and append each to the journal when it is finished."""
    if not missing:
        return AnsweringCost(0, 0, 0.0, None)
    with ExitStack() as stack:
        device = None
        if isinstance(contender, EndpointContender):
            made = _from_endpoint(contender, items, missing, decoding)
        else:
            base = stack.enter_context(loaded(contender.model))
            device = base.model.device
            made = _from_model(contender, base, items, missing, decoding)
        _reset_peak(device)
        started, count, tokens = time.perf_counter(), 0, 0
        for one in tracked(made, f"answers of {contender.name}", sum(map(len, missing.values()))):
            line = {
                "contender": contender.name,
                "item_id": items[one.item].item_id,
                "sample": one.sample,
                "text": one.text,
                "tokens": one.tokens,
                "finish": one.finish,
            }
            sink.record(one.item, one.sample, line)
            count, tokens = count + 1, tokens + (one.tokens or 0)
        return AnsweringCost(count, tokens, time.perf_counter() - started, _peak_mib(device))


def _from_model(
    contender: ModelContender | RoutedContender,
    base: Base,
    items: Sequence[PromptedItem],
    missing: Mapping[int, Sequence[int]],
    decoding: Decoding,
) -> Iterator[_NewAnswer]:
    numbers = list(missing)
    prompts = prompt_tokens(base, [contender.framing.around(items[number].prompt) for number in numbers])
    if over := _without_room(base, [items[number] for number in numbers], prompts, decoding):
        raise InputError(
            f"{contender.name}: {len(over)} prompts leave no room for {decoding.max_new_tokens} tokens in a context of "
            f"{longest_context(base.model)} ({', '.join(over[:5])}): leave these items out for every contender, or "
            "lower max_new_tokens"
        )
    for adapter, chosen in contender.by_adapter([items[number].prompt for number in numbers]):
        with ExitStack() as stack:
            if adapter is not None:
                stack.enter_context(applied(base.model, adapter))
            stack.enter_context(column_major(base.model))
            generated = generate(
                base.model,
                [prompts[at] for at in chosen],
                [[seed_of(decoding, items[numbers[at]].item_id, s) for s in missing[numbers[at]]] for at in chosen],
                decoding,
                stop_ids(base),
                BatchLimits(budgets=[decoding.budget(items[numbers[at]].reference) for at in chosen]),
            )
            for index, sample, done in generated:
                number = numbers[chosen[index]]
                text = base.tokenizer.decode(list(done.tokens), skip_special_tokens=True)
                yield _NewAnswer(number, missing[number][sample], text, done.count, done.finish)


def _from_endpoint(
    contender: EndpointContender,
    items: Sequence[PromptedItem],
    missing: Mapping[int, Sequence[int]],
    decoding: Decoding,
) -> Iterator[_NewAnswer]:
    endpoint = contender.endpoint
    with client_of(endpoint) as client, ThreadPoolExecutor(endpoint.concurrent) as pool:
        requests = {
            pool.submit(
                reply,
                client,
                endpoint,
                contender.framing.around(items[number].prompt),
                decoding.model_copy(update={"max_new_tokens": decoding.budget(items[number].reference)}),
                seed_of(decoding, items[number].item_id, sample),
            ): (number, sample)
            for number, samples in missing.items()
            for sample in samples
        }
        failed: BaseException | None = None
        for future in as_completed(requests):
            if future.cancelled():
                continue
            if (error := future.exception()) is not None:
                failed = failed or error
                for waiting in requests:
                    waiting.cancel()  # requests under way may still be answered, and those answers are kept
                continue
            answer = future.result()
            yield _NewAnswer(*requests[future], answer.text, answer.tokens, answer.finish)
        if failed is not None:
            raise failed


def _stored(contender: StoredContender, items: Sequence[PromptedItem], decoding: Decoding) -> list[Answer]:
    if not contender.answers:
        raise InputError(f"{contender.source} holds scores, no answers: {contender.name} can only be compared by score")
    wanted = [(item.item_id, sample) for item in items for sample in range(decoding.samples)]
    if missing := [key for key in wanted if key not in contender.answers]:
        name, sample = missing[0]
        raise InputError(
            f"{contender.source} lacks {len(missing)} of {len(wanted)} answers, the first is sample {sample} of "
            f"{name}: compare on the items and samples that it holds"
        )
    answers = []
    for item_id, sample in wanted:
        text, tokens, finish = contender.answers[item_id, sample]
        answers.append(_answer(contender.name, item_id, sample, {"text": text, "tokens": tokens, "finish": finish}))
    return answers


def _reset_peak(device: Any) -> None:
    """Reset the peak memory. Linux keeps a peak per process, and resets it on request (proc(5), clear_refs)."""
    if device is not None and device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR_PEAK.exists():
        _CLEAR_PEAK.write_text("5")


def _peak_mib(device: Any) -> float:
    if device is not None and device.type == "cuda":
        import torch

        return round(float(torch.cuda.max_memory_allocated(device)) / 2**20, 1)
    if _STATUS.exists():
        lines = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines() if ":" in line)
        if "VmHWM" in lines:
            return round(int(lines["VmHWM"].split()[0]) / 2**10, 1)
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, 1)
