"""Held-out questions and where they come from: the graph's test split, files, public benchmarks; leaks into training.

Imports nothing of its siblings.
"""
