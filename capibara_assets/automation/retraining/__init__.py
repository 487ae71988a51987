"""When the automation may train a domain again: what is known of it, the deployment's rules, and the decision.

Whoever trains by hand, with `capibara run`, a backfill or in the UI, is not asked; what that spends counts.
"""
