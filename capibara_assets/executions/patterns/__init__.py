"""Recurring pieces of executed code (idioms) and repair pairs.

Imports `labels` and `parsing`.
"""
