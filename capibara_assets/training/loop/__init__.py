"""Training of one voter from request to adapter: the loop, validation, guards, and what a strategy adds to a step.

Imports `data`, `step`, `parallel`, `resume` and `monitoring`.
"""
