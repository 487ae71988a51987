"""What a stranger's `config.json` may say, before anything is computed, built or loaded by it.

Imports nothing of the package.
"""
