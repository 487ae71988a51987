"""Federated training with clients in other processes or organisations; they exchange bytes and JSON (`exchange`).

Imports `standalone`, `strategies` and what lies below them, and nothing that knows a network: `deploy/flower` does.
"""
