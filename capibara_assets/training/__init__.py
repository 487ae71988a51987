"""LoRA training of several voters, in processes of their own: plan, loop, strategies, resume, supervision.

Imports `checkpoints`, `planning`, `modeling`, `datasets` and what lies below them; never Dagster.
"""
