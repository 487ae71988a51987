"""The local sandbox: Python, SQL and JavaScript in isolated processes.

Imports `recording` only; `replay` and the grader build on it.
"""
