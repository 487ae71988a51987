"""File formats of playbooks: ACE JSON and text, markdown, TOON and deltas; detection, reading and writing.

Imports `history`, `schema` and `similarity`. A new format is a new module here.
"""
