"""Explanations: walks through calls, requests that are answered, and the causes of failures; made of what ran again.

Imports `kinds`, `code` and `anatomy` of `datasets`; nothing there imports this folder.
"""
