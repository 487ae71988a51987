"""Promote, reject or inconclusive: the decision, its explanation, and the ledger of uses of the test split.

Imports `statistics` and `decision_rule`.
"""
