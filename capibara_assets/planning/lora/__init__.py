"""LoRA training recipes computed from a dataset, a base model and a target; plans of the shipped training recipes.

Imports `accounting`, `figures`, `hardware`, `models` and `recipe`.
"""
