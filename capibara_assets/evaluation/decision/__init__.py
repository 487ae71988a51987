"""The decision (promote, reject or inconclusive), its explanation, and the ledger of uses of the test split.

Imports `statistics` and `decision_rule`.
"""
