"""Executions of agents' code: recording, ingest, redaction, classification, patterns, repair pairs, local sandbox.

Imports `storage` and what lies below it, and (for the recipe) `playbooks` and `deployment`; never Dagster.
"""

from capibara_assets.executions.recording.recorder import record

__all__ = ["record"]
