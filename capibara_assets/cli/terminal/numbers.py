"""Bounds of numbers on the command line that several commands share."""

import click

PORT = click.IntRange(0, 65535)
