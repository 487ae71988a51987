"""Commands on data: imports and exports, quarantine, lineage of records, forgetting, schemas.

Imports `cli.graph` and the libraries, no other group of commands.
"""
