"""Tokenisation of chat messages: templates, masks, packing, batches, and the cache on disk.

Imports only the schema of `datasets`.
"""
