"""Formats of AutoGen and AG2: what their consoles print, and the chat history of a result, in JSON.

Imports what all formats share, and `hosted/console_dialogues.py`.
"""
