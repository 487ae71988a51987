"""Knowledge extracted from executions: recurring pieces of code (idioms) as patterns, and repair pairs.

Imports `labels` and the modules beside this folder.
"""
