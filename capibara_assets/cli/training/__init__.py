"""Commands on training: plan, check the machine, train, inspect epochs and metrics.

Imports `cli.checkpoint` and the libraries.
"""
