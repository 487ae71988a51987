"""The data of each step: examples, their order per voter, and batches of tokens.

Imports `step.settings`, `monitoring`, `recipe`, `request` and `ranks`.
"""
