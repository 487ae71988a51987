"""One voter on several processes: DeepSpeed ZeRO, DDP, FSDP2, and the choice between them.

Imports `step` and `ranks`.
"""
