"""Steppers for one voter on several processes (DDP, FSDP2, DeepSpeed ZeRO, accelerate), and the choice between them.

Imports `step`, `recipe` and `ranks`.
"""
