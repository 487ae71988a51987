"""Checks of TPU plans by XLA: lowering and compiling a step in a separate process, and cached verdicts.

Imports `tpu`, `writers`, `hardware` and the modules directly in `planning`.
"""
