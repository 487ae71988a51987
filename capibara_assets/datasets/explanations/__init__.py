"""Explanations from traces: walks through calls, answered requests, and causes of failures.

Imports `kinds`, `code` and `anatomy` of `datasets`; nothing there imports this folder.
"""
