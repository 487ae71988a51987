"""The contenders of an evaluation: models with adapters and prompts, routed experts, endpoints, stored answers.

Each has a `name`, and an `identity`: a digest of everything that determines its answers besides item and decoding; the
name is not part of it. Those that run in this process also say which of their adapters answers a prompt.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from capibara_assets.errors import InputError
from capibara_assets.evaluation.contenders.endpoints import Endpoint
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base, load_base, require_runnable
from capibara_assets.modeling.files import base_digest
from capibara_assets.storage.digests import canonical_json, combine, sha256_bytes

Message = Mapping[str, str]
Route = Callable[[Sequence[str]], Sequence[str | None]]
"""Prompts (what the user says last) to the names of experts; None: the base answers."""

PLAYBOOK_ARM = "+playbook"
"""Suffix of an adapter's name where it is evaluated with the playbook in context."""


@dataclass(frozen=True)
class Framing:
    """The system message and demonstrations that are put around every prompt.

    Attributes:
        system: a system message, before the prompt's own; empty: none.
        demos: messages of worked examples, user and assistant by turns, after the system message.
    """

    system: str = ""
    demos: tuple[Message, ...] = ()

    def around(self, prompt: Sequence[Message]) -> list[Message]:
        """Add the framing's messages to a prompt."""
        messages = with_system(prompt, self.system)
        at = 1 if messages and messages[0]["role"] == "system" else 0
        return [*messages[:at], *self.demos, *messages[at:]]

    @property
    def digest(self) -> str:
        """Digest of the framing."""
        return sha256_bytes(canonical_json([self.system, [dict(message) for message in self.demos]]))


@dataclass(frozen=True)
class ModelContender:
    """A model in this process: a base or merged model, optionally with an adapter and a framing.

    Attributes:
        model: loaded, or a folder that is loaded while the contender answers.
        adapter: applied to the model while it answers.
    """

    name: str
    model: Base | Path
    adapter: LoraAdapter | None = None
    framing: Framing = Framing()

    @property
    def identity(self) -> str:
        return combine(_model_parts(self.model, self.framing) | {"adapter": _adapter_digest(self.adapter)})

    def by_adapter(self, prompts: Sequence[Sequence[Message]]) -> list[tuple[LoraAdapter | None, list[int]]]:
        """Positions of the prompts that each adapter answers."""
        return [(self.adapter, list(range(len(prompts))))]


@dataclass(frozen=True)
class RoutedContender:
    """Experts on one base; a router picks one for each prompt, or the base.

    Attributes:
        adapters: by the names that `route` gives.
        route: such as `Router.pick`, or `Router.route`, which may abstain (None).
    """

    name: str
    model: Base | Path
    adapters: Mapping[str, LoraAdapter]
    route: Route
    framing: Framing = Framing()

    @property
    def identity(self) -> str:
        experts = {f"expert {name}": _adapter_digest(adapter) for name, adapter in self.adapters.items()}
        return combine(_model_parts(self.model, self.framing) | experts)

    def by_adapter(self, prompts: Sequence[Sequence[Message]]) -> list[tuple[LoraAdapter | None, list[int]]]:
        """Positions of the prompts that each adapter answers; None: the base.

        Raises:
            InputError: as `picks`.
        """
        by_name: dict[str | None, list[int]] = {}
        for at, name in enumerate(self.picks(prompts)):
            by_name.setdefault(name, []).append(at)
        return [
            (None if name is None else self.adapters[name], by_name[name])
            for name in sorted(by_name, key=lambda name: name or "")
        ]

    def picks(self, prompts: Sequence[Sequence[Message]]) -> list[str | None]:
        """The expert for each prompt; None: the base.

        Raises:
            InputError: the router names an expert that has no adapter here.
        """
        picks = list(self.route([last_user_message(prompt) for prompt in prompts]))
        if unknown := sorted({name for name in picks if name is not None} - self.adapters.keys()):
            raise InputError(
                f"{self.name}: the router picks {', '.join(unknown)}, but there are adapters of "
                f"{', '.join(sorted(self.adapters)) or 'no expert'} only: train the router on these experts"
            )
        return picks


@dataclass(frozen=True)
class EndpointContender:
    """A model behind an HTTP endpoint."""

    name: str
    endpoint: Endpoint
    framing: Framing = Framing()

    @property
    def identity(self) -> str:
        return combine({"endpoint": self.endpoint.identity, "framing": self.framing.digest})


@dataclass(frozen=True)
class StoredContender:
    """Answers or scores of an earlier run: a reference that does not run again.

    Attributes:
        answers: (item, sample) -> (text, tokens, finish); tokens None where the file does not give them.
        scores: item -> score, for a file that holds scores only.
    """

    name: str
    source: Path
    answers: Mapping[tuple[str, int], tuple[str, int | None, str]] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        stored = [sorted((*key, *map(str, value)) for key, value in self.answers.items())]
        return sha256_bytes(canonical_json([*stored, sorted(self.scores.items())]))


Contender = ModelContender | RoutedContender | EndpointContender | StoredContender


@contextmanager
def loaded(model: Base | Path) -> Iterator[Base]:
    """The model, loaded and tried where it is given as a folder, and released afterwards.

    Raises:
        InputError: it cannot be loaded or run.
    """
    if isinstance(model, Path):
        model = load_base(model)
        require_runnable(model)
    yield model


def last_user_message(prompt: Sequence[Message]) -> str:
    """The last user message of a prompt, which routers are trained on.

    Raises:
        InputError: there is no user message.
    """
    for message in reversed(prompt):
        if message["role"] == "user":
            return message["content"]
    raise InputError(f"a prompt without a user's message cannot be routed: {json.dumps(list(map(dict, prompt)))[:200]}")


def with_system(messages: Sequence[Message], playbook: str) -> list[Message]:
    """The messages with the playbook as their one system message, before the text of one that is already there."""
    if not playbook:
        return list(messages)
    if messages and messages[0]["role"] == "system":
        return [{"role": "system", "content": f"{playbook}\n\n{messages[0]['content']}"}, *messages[1:]]
    return [{"role": "system", "content": playbook}, *messages]


def _model_parts(model: Base | Path, framing: Framing) -> dict[str, str]:
    return {"model": model.digest if isinstance(model, Base) else base_digest(model), "framing": framing.digest}


def _adapter_digest(adapter: LoraAdapter | None) -> str:
    """Of what changes the base: tensors and how they are scaled, not who trained them."""
    if adapter is None:
        return "none"
    tensors = {
        name: sha256_bytes(tensor.detach().float().contiguous().cpu().numpy().tobytes())
        for name, tensor in adapter.tensors.items()
    }
    scales = {module: repr(adapter.scale(module)) for module in adapter.modules}
    return combine({"tensors": combine(tensors), "scales": combine(scales)})
