"""Losses and answers of every contender on the same items: those of a domain, or those named one by one.

Imports `contenders`, `answering`, `items`, `routing`, `recipe` and `report`.
"""
