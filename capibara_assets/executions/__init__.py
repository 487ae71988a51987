"""Record, read, check, redact and classify executions of agents' code; patterns and repair pairs; the local sandbox."""

from capibara_assets.executions.recording.recorder import record

__all__ = ["record"]
