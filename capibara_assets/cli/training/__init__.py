"""Commands on trainings of one's own: train, plan, check the machine, follow epochs and metrics.

Imports `cli.checkpoint` and the libraries.
"""
