"""Keys and ciphers of an encrypted checkpoint store: where a key comes from, and what it seals.

Imports nothing of its siblings; `store` builds on it.
"""
