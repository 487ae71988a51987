"""How commands look: examples in their help, `--quiet`, tables, the line of progress, exit codes, shell completion.

Imported by the commands beside it; imports only what lies below the command line.
"""
