"""LoRA training of several voters, each in a process of its own: plan, loop, strategies, resume, supervision.

Imports `checkpoints`, `planning`, `modeling`, `datasets` and what lies below them; never Dagster.
Public names: `api`.
"""
