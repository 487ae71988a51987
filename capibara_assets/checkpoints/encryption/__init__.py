"""Keys and ciphers of an encrypted checkpoint store: wrapping keys, key services, and the vault of data keys.

Imports nothing of its siblings; `store` builds on it.
"""
