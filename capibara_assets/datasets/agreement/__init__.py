"""Agreement: recorded answers of one problem run on changed inputs; those fitted to their tests are outvoted.

`fitted.py` is the entry. Imports `anatomy`, `code`, `derived/trials.py` and `kinds/evidence.py` of `datasets`.
"""
