"""Configuration of a deployment: environment variables, YAML declarations, and the location of `resources/`.

Imports `errors` only.
"""
