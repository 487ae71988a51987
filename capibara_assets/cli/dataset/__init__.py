"""Commands on data: import and export examples, quarantine, lineage, deletion of records, schemas.

Imports `cli.graph` and the libraries, no other group of commands.
"""
