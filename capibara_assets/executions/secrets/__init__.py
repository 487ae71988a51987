"""Redaction: what a secret looks like, where one stands, and its replacement by a typed placeholder.

Imports `formats` only. A new secret format goes into `providers`.
"""
