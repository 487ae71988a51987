"""Hardware: declared targets, slices of chip families, and the time of collective operations on their links.

Imports no other module of `planning`. A new target is a file in `resources/hardware`.
"""
