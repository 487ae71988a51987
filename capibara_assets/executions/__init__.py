"""Executions of agents' code: recorded, read, redacted, labelled and mined for patterns; the local sandbox.

Imports `playbooks`, `storage` and what lies below them; never Dagster. `record` is for agents and imports little.
"""

from capibara_assets.executions.recording.recorder import record

__all__ = ["record"]
