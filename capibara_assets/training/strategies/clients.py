"""The clients of a federated voter: which train examples each one holds, and the request of its own training."""

import io

import polars as pl

from capibara_assets.errors import InputError
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.jsonfiles import write_bytes_atomic
from capibara_assets.training.data.examples import COLUMNS, read_examples
from capibara_assets.training.data.order import rank, training_part, validation_shard
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.recipe import TrainingRecipe, VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.strategy import FederatedStrategy, PlainStrategy

CLIENTS = "clients"
"""Folder of the clients' datasets within the voter's folder."""
_TENANTS = "tenants"
_BOUNDS = ("max_steps", "max_tokens")  # of a client's whole training, over all rounds


def client_requests(run: VoterRun, strategy: FederatedStrategy) -> tuple[dict[str, TrainingRequest], str]:
    """Client -> request of its training, on a file of its own examples and the voter's validation shard.

    Returns:
        The requests, and what a client is made of (`tenants` or `groups`).

    Raises:
        InputError: as `assign_clients`.
    """
    request, voter, ranks = run.request, run.voter, run.ranks
    further = [name for name in (_TENANTS,) if name in pl.read_parquet_schema(request.dataset)]
    examples, n = read_examples(request.dataset, *further), len(request.recipe.voters)
    train, validation = training_part(examples, voter.shard, n), validation_shard(examples, voter.shard, n)
    client_of, unit = assign_clients(train, strategy)
    recipe, requests = client_recipe(request.recipe, voter, strategy), {}
    for client in range(strategy.clients):
        rows = pl.concat([train.filter(client_of == client), validation]).select(COLUMNS)
        file = run.folder / CLIENTS / f"client-{client}.parquet"
        if ranks.main and not file.is_file():
            buffer = io.BytesIO()
            rows.write_parquet(buffer)
            write_bytes_atomic(file, buffer.getvalue())
        identity = [request.dataset_digest, voter.shard, n, strategy.clients, client, unit]
        update = {
            "dataset": file,
            "dataset_digest": sha256_bytes(canonical_json(identity)),
            "recipe": recipe,
            "checkpoints": None,
        }
        requests[f"client-{client}"] = request.model_copy(update=update)
    ranks.wait()
    return requests, unit


def client_recipe(recipe: TrainingRecipe, voter: VoterSpec, strategy: FederatedStrategy) -> TrainingRecipe:
    """The recipe of a client's training in one round: its epochs, its share of the bounds, and the voter alone."""
    choice = recipe.training
    bounds = {name: max(1, most // strategy.rounds) for name in _BOUNDS if (most := getattr(choice, name))}
    training = choice.model_copy(update={"epochs": strategy.local_epochs, **bounds})
    alone = (voter.model_copy(update={"shard": 0, "strategy": PlainStrategy()}),)
    return recipe.model_copy(update={"training": training, "voters": alone})


def shared_out(units: pl.Series, clients: int, what: str = "train groups") -> dict[str, int]:
    """Group (or cluster of tenants) -> client: in the order of their digests, one client after the other.

    Args:
        what: the units' name in the error.

    Raises:
        InputError: there are fewer units than clients.
    """
    ordered = sorted(set(units), key=lambda name: rank("client", name))
    if len(ordered) < clients:
        raise InputError(f"{len(ordered)} {what} are too few for {clients} clients: lower clients")
    return {name: position % clients for position, name in enumerate(ordered)}


def assign_clients(train: pl.DataFrame, strategy: FederatedStrategy) -> tuple[pl.Series, str]:
    """The client of each train example, and the unit of a client (`tenants` or `groups`).

    A client gets whole tenants or whole groups. Tenants that share an example count as one, because their changes could
    not be told apart. With `by: auto` tenants are used where every example names one and there are at least as many as
    clients.

    Args:
        train: with `group_id`, and `tenants` where the dataset has that column.

    Raises:
        InputError: too few groups or tenants, or `by: tenants` for examples without tenants.
    """
    if strategy.by != "groups":
        known = _TENANTS in train.columns and bool((train[_TENANTS].list.len() > 0).all())
        if not known and strategy.by == "tenants":
            raise InputError("by: tenants, but not every train example names its tenant: set by: groups")
        if known:
            clusters = _clusters(train[_TENANTS].to_list())
            if strategy.by == "tenants" or clusters.n_unique() >= strategy.clients:
                client_of = shared_out(clusters, strategy.clients, "tenants that share no example")
                return clusters.replace_strict(client_of, return_dtype=pl.Int64), _TENANTS
    client_of = shared_out(train["group_id"], strategy.clients)
    return train["group_id"].replace_strict(client_of, return_dtype=pl.Int64), "groups"


def _clusters(tenants: list[list[str]]) -> pl.Series:
    """For each example the first tenant, by name, of all that are connected with its own by shared examples."""
    parent: dict[str, str] = {}

    def root_of(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for names in tenants:
        for other in names[1:]:
            first, second = sorted((root_of(names[0]), root_of(other)))
            parent[second] = first
    return pl.Series([root_of(names[0]) for names in tenants], dtype=pl.String)
