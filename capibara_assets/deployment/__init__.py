"""Configuration of a deployment: environment variables, YAML declarations, and the location of `resources/`.

Also how libraries publish their names (`public_names`). Imports `errors` only.
"""
