"""The recorder, which wraps a sandbox, and the JSON envelopes that it writes.

Imports nothing of its siblings; agents import it, so it stays light.
"""
