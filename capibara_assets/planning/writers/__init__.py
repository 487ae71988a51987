"""Writers of other tools' configuration: T5X gin, MaxText, our JAX trainer, launch scripts.

Imports `hardware`, `models` and `mesh`. A new trainer is a new module here.
"""
