"""What PEFT's LoRA configs say: the modules that a plan chooses, and what a stranger's may name.

Imports nothing of the package.
"""
