"""Commands on models: generate answers, diagnose, evaluate, compare, and download a base model.

Imports `cli.graph`, `cli.checkpoint` and the libraries.
"""
