"""Messages to people's webhooks: failed checks, changes of what is served, rejected voters, a budget that is spent.

Imports `automation.retraining` and what lies below the automation; only `definitions` and `cli` import it.
"""
