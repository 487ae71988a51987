"""Where secrets stand, by what consumes the value: a module per family of places. `every.EVERY_ROLE` has all of them.

Imports `characters` and `plausibility`. A new family is a module with a tuple of `Role`, named in `every`.
"""
