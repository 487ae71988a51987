"""Held-out items from the graph's test split, files and public benchmarks; leaks of items into training data.

Imports nothing of its siblings.
"""
