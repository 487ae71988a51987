"""Commands on checkpoints: the checkpoint store, merging, and verifying a consensus certificate.

Imports `cli.graph` and the libraries, no other group of commands.
"""
