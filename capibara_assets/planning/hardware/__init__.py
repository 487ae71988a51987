"""Hardware targets: declared ones, slices of chip families, links and their speed.

Imports nothing of its siblings. A new target is a file in `resources/hardware`.
"""
