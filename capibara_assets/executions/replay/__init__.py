"""Recorded code run again in the sandbox, to see whether the recorded output comes out again.

Imports `sandbox`, `formats` and `recording`.
"""
