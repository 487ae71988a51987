"""Federated training whose clients are other processes or organisations: what is sent is bytes and JSON (`exchange`).

Imports `standalone`, `strategies` and what lies below them, and nothing that knows a network: `deploy/flower` does.
"""
