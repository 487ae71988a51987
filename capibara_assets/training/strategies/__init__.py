"""How voters come to their weights beyond plain training: federated clients, privacy, seeds, soups of several
trainings.

Imports `loop` and what lies below it; `strategy` declares them.
"""
