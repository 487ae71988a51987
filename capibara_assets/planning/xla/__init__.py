"""Plans put before the real compiler: cases, lowering and compiling in a process of its own, cached verdicts.

Imports `tpu`, `writers` and `hardware`.
"""
