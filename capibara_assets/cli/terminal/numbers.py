"""Bounds of numbers on the command line that several commands share."""

import click

PORT = click.IntRange(0, 65535)
MOST = 10**12
"""The largest count that is computed with: products of some are still numbers with a fraction."""
