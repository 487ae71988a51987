"""Retraining rules: facts about each domain, the deployment's rules, and the decision whether to train now.

Whoever trains by hand is not asked; what that spends counts. Imports what lies below the automation; conditions,
sensors and notifications import it.
"""
