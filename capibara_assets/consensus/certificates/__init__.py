"""The certificate of an agreement: its content, how it is written, and how it is verified from its inputs.

Imports `election` and `choose`; `agree` builds on it.
"""
