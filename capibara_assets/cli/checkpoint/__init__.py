"""Commands on checkpoints: the store, merges, and the verification of a consensus.

Imports `cli.graph` and the libraries, no other group of commands.
"""
