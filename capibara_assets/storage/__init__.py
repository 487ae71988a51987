"""The artifact store: typed tables, manifests, digests, atomic publishing; local folders and object stores alike."""
