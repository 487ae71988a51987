"""Redaction: finds secrets (and, on request, personal data) in text and replaces them by typed placeholders.

Imports `formats` and `parsing`. A new provider's key format goes into `providers`, e-mail and IP into `personal`.
"""
