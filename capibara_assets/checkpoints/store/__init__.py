"""The checkpoint store: packs of content-addressed pieces, atomic publication, garbage collection, scrubbing.

Imports `content`, `tree`, `encryption` and `formats`; `inspect`, `retention` and `artifacts` build on it.
"""
