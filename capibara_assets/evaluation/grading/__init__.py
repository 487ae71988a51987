"""Grades of answers, found by running them: assertions split into reports, the sandboxed run, a journal to resume from.

Imports `items`.
"""
