"""Resume points and epoch checkpoints: how a training goes on with the very next step.

Imports `monitoring`, `request` and `ranks`.
"""
