"""Readers of the logs that one program exports as a page for people, in HTML or Markdown.

Imports `general` (answers, tools' names, Markdown), `runs`, `fields`, `tools`, `trajectories` and `formats`.
"""
