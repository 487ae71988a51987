"""Exit codes of all commands; `docs/running.md` lists their meaning for single commands."""

DONE = 0
FOUND = 1
"""The command worked, and what it looked at is not in order: damage, a failed check, a failed step."""
REFUSED = 2
"""It could not do what was asked: an argument, a file, a setting; nothing was changed."""
UNDECIDED = 3
"""It worked, and there is no clear answer: an inconclusive comparison, a certificate that holds with reservations, a
trace that lacks what could not be read."""
INTERRUPTED = 130
"""Ctrl-C or SIGTERM; the same command goes on."""
UNREAD = 141
"""Nobody reads its output any more, as a shell says of a program that SIGPIPE ended."""
