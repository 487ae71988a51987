"""File formats of playbooks: ACE JSON and text, markdown, TOON, deltas, and their detection.

Imports `history`, `schema` and `similarity`. A new format is a new module here.
"""
