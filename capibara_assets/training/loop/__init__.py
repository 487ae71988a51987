"""The training loop of one voter, from request to adapter: steps, validation, guards, and strategies' tactics.

Imports `data`, `step`, `parallel`, `resume`, `monitoring`, `environment` and `ranks`.
"""
