"""Detectors of faults in examples, independent of the code that builds them: each reads an example alone.

Imports nothing of `capibara_assets.datasets`, so that a mistake there cannot hide itself here.
"""
