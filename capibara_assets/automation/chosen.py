"""The domains that the automation materializes, as chosen by the user and stored in the Dagster instance."""

import dagster as dg

from capibara_assets.domains import DOMAINS, Domain

_KEY = "capibara/domains"
_ROOTS = ("e2b_executions", "consolidated_playbook")  # the first assets of a domain; all others follow them


def chosen_domains(instance: dg.DagsterInstance) -> tuple[Domain, ...]:
    """The chosen domains, in the order of the partitions; all if none was chosen."""
    stored = instance.daemon_cursor_storage.get_cursor_values({_KEY}).get(_KEY)
    names = set(stored.split(",")) if stored else set(DOMAINS)
    return tuple(domain for domain in DOMAINS if domain in names)


def choose_domains(instance: dg.DagsterInstance, domains: tuple[Domain, ...]) -> None:
    """Make these the chosen domains."""
    instance.daemon_cursor_storage.set_cursor_values({_KEY: ",".join(domains)})


def add_domains(instance: dg.DagsterInstance, domains: tuple[Domain, ...]) -> tuple[Domain, ...]:
    """Add to the chosen domains, and return them all.

    Where nobody has chosen yet, the domains that have results count as chosen: a deployment that runs for all domains
    must not stop doing so because one of them is run by hand.
    """
    if instance.daemon_cursor_storage.get_cursor_values({_KEY}):
        before = set(chosen_domains(instance))
    else:
        before = {Domain(d) for name in _ROOTS for d in instance.get_materialized_partitions(dg.AssetKey(name))}
    together = tuple(domain for domain in DOMAINS if domain in before | set(domains))
    choose_domains(instance, together)
    return together


class ChosenDomains(dg.AutomationCondition[dg.AssetKey]):
    """True for the partitions of chosen domains, and for assets that are not partitioned."""

    @property
    def name(self) -> str:
        return "chosen domain"

    def evaluate(self, context: dg.AutomationContext[dg.AssetKey]) -> dg.AutomationResult[dg.AssetKey]:
        subset = context.candidate_subset
        if context.partitions_def is not None:
            chosen = chosen_domains(context.asset_graph_view.instance)
            subset = subset.compute_intersection_with_partition_keys({domain.value for domain in chosen})
        return dg.AutomationResult(context, subset)
