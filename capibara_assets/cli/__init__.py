"""The `capibara` command: `main` lists the commands, one folder per group of them.

Imports everything below it; nothing imports it.
"""
