"""Re-execution of recorded code in isolated workers, to verify that it gives the recorded output again.

Imports `sandbox`, `formats`, `recording` and `parsing`.
"""
