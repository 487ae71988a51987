"""Readers by shape, whichever program wrote a log: calls of tools and what answers them, joined by id or by place.

Imports `runs`, `fields`, `tools`, `trajectories` and `formats`. They stand last in `readers.py`. What a program writes
of a command's end counts only in the forms known here.
"""
