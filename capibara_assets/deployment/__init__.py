"""The choices of a deployment, read once: places (environment), declarations (YAML), and where `resources/` lies.

Imports `domains` and `errors` only.
"""
