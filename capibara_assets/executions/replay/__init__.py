"""Recorded code run again in the sandbox: does the recorded output come out again?

Imports `sandbox`, `formats` and `recording`.
"""
