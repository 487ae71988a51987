"""The router: which expert answers a prompt, how sure that is, and how good the router is.

Imports `statistics`.
"""
