"""Adapters and models on disk: formats, attestable digests."""
