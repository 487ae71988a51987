"""Diagnosis of models: checks of files, tokenizer, adapter, placement and behaviour, and a catalogue of remedies.

Imports `answering` and `contenders`.
"""
