"""From chat messages to tokens: templates, masks, packing, batches, and the cache on disk.

Imports the schema only.
"""
