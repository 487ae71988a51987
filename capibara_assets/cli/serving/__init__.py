"""Commands on what is served: promote, roll back, export.

Imports `cli.graph` and the libraries, no other group of commands.
"""
