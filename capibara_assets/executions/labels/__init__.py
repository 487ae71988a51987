"""Classification of executions into domains by their code: signals, libraries, provenance of names.

Imports `formats` and `parsing`.
"""
