"""Commands on the served model: promote, roll back, export.

Imports `cli.graph` and the libraries, no other group of commands.
"""
