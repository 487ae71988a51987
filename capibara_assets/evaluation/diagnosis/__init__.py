"""What is wrong with a model: checks of files, tokenizer, adapter, placement and behaviour, and a catalogue of
remedies.

Imports `answering` and `contenders`.
"""
