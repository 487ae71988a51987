"""The terms of a round, fixed before anybody submits an adapter. Every message is signed over their digest."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from capibara_assets.checkpoints.inspect.verify import module_shapes
from capibara_assets.consensus.certificates.model import ROUND as CONTEXT_ROUND
from capibara_assets.consensus.election.ballots import is_public_key
from capibara_assets.consensus.election.keys import require_name
from capibara_assets.consensus.electorate import voting_rounds
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.consensus.rounds.places import RoundPlace
from capibara_assets.datasets.tokens.tokenising import Encoded
from capibara_assets.errors import InputError, in_words
from capibara_assets.modeling.base import Base
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.jsonfiles import strict_json

ROUND, EXAMPLES = "round.json", "examples.json"
_LARGEST = 1 << 30  # bytes of the examples
_LONGEST = 64 << 20  # bytes of the round itself
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class Round(BaseModel):
    """The terms of a vote among organisations; every message names their digest."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    schema_version: int = Field(default=1, ge=1, le=1)
    domain: str
    base_digest: str = Field(description="Of the base model that adapters are trained on")
    recipe: dict[str, Any] = Field(description="ConsensusRecipe: thresholds, rule, how much of each shard is read")
    recipe_digest: str
    modules: dict[str, list[int]] = Field(description="Module that an adapter has to change -> [out, in]")
    max_rank: int = Field(ge=1)
    examples: str = Field(description="SHA-256 of examples.json: all tokenised examples, and each voter's shard")
    dataset: dict[str, str] = Field(description="What the examples were taken from, and how")
    deadline: str = Field(description="Of submissions, by the clock of the place: RFC 3339, UTC")
    max_bytes: int = Field(ge=1, description="Most bytes of one message of a voter")
    keys: dict[str, str] = Field(min_length=2, description="Registered voter -> public key")
    organiser: str = Field(description="Public key of whoever holds the vote")
    nonce: str = Field(min_length=32, description="Drawn, so that two rounds of equal terms are two")

    @cached_property
    def digest(self) -> str:
        return sha256_bytes(canonical_json(self.model_dump(mode="json")))

    @cached_property
    def closes(self) -> float:
        """The deadline in seconds since 1970."""
        return datetime.strptime(self.deadline, _TIME).replace(tzinfo=UTC).timestamp()

    def consensus_recipe(self) -> ConsensusRecipe:
        return ConsensusRecipe.model_validate(self.recipe)

    def context(self) -> dict[str, str]:
        """Inputs of the election, as it states them."""
        return {
            "domain": self.domain,
            CONTEXT_ROUND: self.digest,
            **{f"dataset_{k}": v for k, v in self.dataset.items()},
        }


@dataclass(frozen=True)
class RoundExamples:
    """The examples of a round, and the indices of each voter's shard."""

    validation: tuple[Encoded, ...]
    shards: Mapping[str, Sequence[int]]

    def written(self) -> bytes:
        listed = [[each.input_ids, each.labels, each.supervised] for each in self.validation]
        return canonical_json({"examples": listed, "shards": {name: list(own) for name, own in self.shards.items()}})

    @classmethod
    def read(cls, data: bytes) -> "RoundExamples":
        """Parse the examples from the bytes whose digest a round states. Raises ValueError: they are none."""
        document = strict_json(data)
        try:
            return cls(tuple(Encoded(*each) for each in document["examples"]), dict(document["shards"]))
        except (TypeError, KeyError) as error:
            raise ValueError(f"no examples and shards: {error}") from error


def write_round(
    place: RoundPlace,
    base: Base,
    examples: RoundExamples,
    recipe: ConsensusRecipe,
    *,
    domain: str,
    dataset: Mapping[str, str],
    targets: Sequence[str],
    max_rank: int,
    deadline: datetime,
    max_bytes: int,
    keys: Mapping[str, str],
    organiser: str,
) -> Round:
    """Write a round to a place; voters receive its digest through another channel.

    Args:
        targets: last parts of the names of the modules that adapters change.
        keys: registered voters, two at least.
        organiser: public key of whoever closes the round.

    Raises:
        InputError: no module of these names, one voter, the organiser's key is a voter's, shards that overlap or are
            too small, or a deadline that is over.
    """
    if len(keys) < 2:
        raise InputError("a round is for two voters or more: register their keys (capibara consensus keys register)")
    if organiser in keys.values():
        raise InputError(
            "the organiser's key is a voter's: make one that is nobody else's (capibara consensus keys new)"
        )
    if deadline <= datetime.now(UTC):
        raise InputError(f"the deadline {deadline:{_TIME}} is over: name a later one")
    named = tuple(name for name, _ in base.model.named_modules() if name.rpartition(".")[2] in set(targets))
    modules = {name: list(shape) for name, shape in module_shapes(base.model, named).items()}
    if lacking := set(targets) - {name.rpartition(".")[2] for name in modules}:
        raise InputError(f"the base model has no module {', '.join(sorted(lacking))}: name those that adapters change")
    _require_shards(examples, recipe, keys)
    written = examples.written()
    plain = recipe.model_dump(mode="json")
    terms = Round(
        domain=domain, base_digest=base.digest, recipe=plain, recipe_digest=sha256_bytes(canonical_json(plain)),
        modules=modules, max_rank=max_rank, examples=sha256_bytes(written), dataset=dict(dataset),
        deadline=deadline.astimezone(UTC).strftime(_TIME), max_bytes=max_bytes, keys=dict(keys), organiser=organiser,
        nonce=os.urandom(16).hex(),
    )  # fmt: skip
    place.create(f"{terms.digest}/{EXAMPLES}", written)
    place.create(f"{terms.digest}/{ROUND}", canonical_json(terms.model_dump(mode="json")))
    return terms


def read_round(place: RoundPlace, digest: str) -> tuple[Round, RoundExamples]:
    """Read the round with a digest, and its examples.

    Raises:
        InputError: there is none at the place, what lies there is not what the digest is of, or a voter's name is none.
    """
    try:
        terms = Round.model_validate(strict_json(place.read(f"{digest}/{ROUND}", _LONGEST)))
        recipe = terms.consensus_recipe()
        data = place.read(f"{digest}/{EXAMPLES}", _LARGEST)
    except FileNotFoundError as error:
        raise InputError(f"{place.root} has no round {digest}: check the address and the digest") from error
    except ValidationError as error:
        raise InputError(f"round {digest[:12]} is none that this software reads: {in_words(error)}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"round {digest[:12]} at {place.root} cannot be read: {error}") from error
    if terms.digest != digest or sha256_bytes(data) != terms.examples:
        raise InputError(f"what lies at {place.root} is not round {digest[:12]}: it was changed")
    if terms.recipe_digest != sha256_bytes(canonical_json(recipe.model_dump(mode="json"))):
        raise InputError(f"round {digest[:12]} states a recipe that this version reads otherwise: use the organiser's")
    if bad := [
        name for name, key in {**terms.keys, "the organiser": terms.organiser}.items() if not is_public_key(key)
    ]:
        raise InputError(f"round {digest[:12]} has no public key for {', '.join(bad)}")
    for name in terms.keys:
        require_name(name)
    try:
        return terms, RoundExamples.read(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{EXAMPLES} of round {digest[:12]} cannot be read: {error}") from error


def _require_shards(examples: RoundExamples, recipe: ConsensusRecipe, voters: Mapping[str, str]) -> None:
    """Each voter has enough examples, and none another's: else the vote would fail after everybody has trained."""
    owner: dict[int, str] = {}
    for name in sorted(voters):
        for index in (i for part in voting_rounds(name, examples.shards.get(name, ()), examples.validation, recipe)
                      for i in part):  # fmt: skip
            if index in owner:
                raise InputError(
                    f"{owner[index]} and {name} would judge on the same example: the dataset needs {len(voters)} "
                    "groups of validation examples, one for each voter"
                )
            owner[index] = name
