"""Executions of agents' code: recorded, read, redacted, labelled and mined for patterns; the local sandbox.

Imports `playbooks`, `storage` and what lies below them; never Dagster.
The public names are those of `api`; `record` is for agents and imports little.
"""

from capibara_assets.executions.api import record

__all__ = ["record"]
