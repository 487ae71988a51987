"""Terminal interface of all commands: help examples, `--quiet`, tables, progress, exit codes, shell completion.

Imported by the commands beside it; imports only what lies below the command line.
"""
