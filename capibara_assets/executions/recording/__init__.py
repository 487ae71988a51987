"""The recorder that wraps a sandbox, and the JSON envelope that it writes.

Imports nothing of its siblings; agents import it, so it stays light.
"""
