"""Commands on models: ask, diagnose, evaluate and compare them, fetch a base model.

Imports `cli.graph`, `cli.checkpoint` and the libraries.
"""
