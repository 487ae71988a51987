"""One optimizer step: the model under training, how gradients become weights, and the settings of both.

Imports `recipe` and `request` only.
"""
