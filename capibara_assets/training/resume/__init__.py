"""Resume points, from which a training continues with the very next step, and epoch checkpoints.

Imports `data.voter_run`, `monitoring`, `request`, `ranks` and the checkpoint store.
"""
