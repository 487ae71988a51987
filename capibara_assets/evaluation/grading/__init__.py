"""Grades of answers, found by running them: the sandboxed run, its verdict, a journal to resume from.

Imports `items`.
"""
