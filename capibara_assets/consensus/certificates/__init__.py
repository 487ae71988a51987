"""Certificates of agreements: data model, writing, and verification from the inputs.

Imports `election` and `choose`; `agree` builds on it.
"""
