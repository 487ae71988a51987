"""Readers of the logs of one program each, which none of the shapes in `general` fits: chats, journals, exports.

Imports `general` (answers and tools' names), `runs`, `fields`, `tools`, `trajectories` and `formats`.
"""
