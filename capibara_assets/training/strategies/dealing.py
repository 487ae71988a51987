"""Which federated client holds which train examples: whole tenants, or whole groups, dealt in turn by their digests."""

import polars as pl

from capibara_assets.errors import InputError
from capibara_assets.training.data.order import rank
from capibara_assets.training.strategy import FederatedStrategy

Unit = str  # "tenants" or "groups"
TENANTS = "tenants"


def dealt(holders: pl.Series, clients: int, what: str = "train groups") -> dict[str, int]:
    """Group (or cluster of tenants) -> client: in the order of digests, dealt in turn; apart from voters' shards.

    Raises:
        InputError: fewer than clients.
    """
    ordered = sorted(set(holders), key=lambda name: rank("client", name))
    if len(ordered) < clients:
        raise InputError(f"{len(ordered)} {what} are too few for {clients} clients: lower clients")
    return {name: position % clients for position, name in enumerate(ordered)}


def deal(train: pl.DataFrame, strategy: FederatedStrategy) -> tuple[pl.Series, str]:
    """The client of each train example, and what a client is made of (`tenants` or `groups`).

    Tenants that share an example are one, because their changes could not be told apart. With `by: auto` tenants are
    used where every example names one and there are at least as many as clients.

    Args:
        train: with `group_id`, and `tenants` where the dataset has that column.

    Raises:
        InputError: too few groups or tenants, or `by: tenants` for examples without tenants.
    """
    if strategy.by != "groups":
        known = TENANTS in train.columns and bool((train[TENANTS].list.len() > 0).all())
        if not known and strategy.by == "tenants":
            raise InputError("by: tenants, but not every train example names its tenant: set by: groups")
        if known:
            clusters = _clusters(train[TENANTS].to_list())
            if strategy.by == "tenants" or clusters.n_unique() >= strategy.clients:
                client_of = dealt(clusters, strategy.clients, "tenants that share no example")
                return clusters.replace_strict(client_of, return_dtype=pl.Int64), TENANTS
    client_of = dealt(train["group_id"], strategy.clients)
    return train["group_id"].replace_strict(client_of, return_dtype=pl.Int64), "groups"


def _clusters(tenants: list[list[str]]) -> pl.Series:
    """For each example the first tenant, by name, of all that hang together with its own."""
    root: dict[str, str] = {}

    def top(name: str) -> str:
        root.setdefault(name, name)
        while root[name] != name:
            root[name] = root[root[name]]
            name = root[name]
        return name

    for names in tenants:
        for other in names[1:]:
            first, second = sorted((top(names[0]), top(other)))
            root[second] = first
    return pl.Series([top(names[0]) for names in tenants], dtype=pl.String)
