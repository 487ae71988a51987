"""The `capibara` command line: `main` lists the commands, and each folder holds one group of them.

Imports everything below it; nothing imports it.
"""
