"""When the automation may train a domain again: what is known of it, the deployment's rules, and the decision.

Whoever trains by hand is not asked; what that spends counts. Imports what lies below the automation; conditions,
sensors and notifications import it.
"""
