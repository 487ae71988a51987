"""One optimizer step: the model under training, the stepper that updates its weights, and the settings of both.

Imports `recipe` and `request`.
"""
