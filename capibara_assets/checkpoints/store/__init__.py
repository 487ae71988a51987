"""The checkpoint store: packs of tensors under their digests, published whole or not at all, collected and scrubbed.

Imports `content`, `tree`, `encryption` and `formats`; `inspect`, `retention` and `artifacts` build on it.
"""
