"""Configuration files for trainers (T5X, MaxText, our JAX trainer) and launch scripts for a TPU slice.

Imports `hardware`, `models`, `mesh` and `recipe`. A new trainer is a new module here.
"""
