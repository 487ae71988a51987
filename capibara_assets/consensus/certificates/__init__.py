"""The certificate of an agreement: what it states, how it is written, and how it is computed again from its inputs.

Imports `vote` and `choose`; `agree` builds on it.
"""
