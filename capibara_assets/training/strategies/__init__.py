"""Strategies beyond a single training: federated clients, differential privacy, averages of several seeds.

Imports `loop` and what lies below it; `strategy` declares them.
"""
