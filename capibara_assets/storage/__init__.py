"""The artifact store: typed tables, manifests and digests, published whole or not at all, on disk or an object store.

Imports `errors` only.
"""
