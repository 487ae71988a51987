"""The specification's claims about plans, each computed by the planner or measured here: what `capibara plan --claims`
prints.

Imports `lora`, `prediction`, `hardware` and what lies below them.
"""
