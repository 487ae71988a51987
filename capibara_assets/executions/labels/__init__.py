"""Which domains an execution belongs to, by its code: signals, libraries, provenance.

Imports `formats` and `parsing`.
"""
