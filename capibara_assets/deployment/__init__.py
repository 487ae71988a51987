"""Configuration of a deployment: its file, the variables that override it, and the location of `resources/`.

Also how foreign YAML is read, and how libraries publish their names (`public_names`). Imports `errors` only.
"""
