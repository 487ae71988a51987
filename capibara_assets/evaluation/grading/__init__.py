"""Grades of answers, found by running them: assertions taken apart, the sandboxed run, a journal to resume from.

Imports `items`.
"""
