"""The specification's claims about plans, each checked by computing or measuring it (`capibara plan --claims`).

Imports `lora`, `prediction`, `hardware` and the modules of `planning` that these import.
"""
