"""Webhook notifications: failed checks, changes of what is served, rejected voters, exhausted budgets.

Imports `automation.retraining` and what lies below the automation; only `definitions` and `cli` import it.
"""
