"""The LoRA recipe that a dataset, a base model and a target ask for; plans of the recipes that ship.

Imports `accounting`, `hardware`, `prediction` and `models`.
"""
