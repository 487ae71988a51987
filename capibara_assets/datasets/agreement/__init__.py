"""Agreement of recorded answers: solutions of one problem run on changed inputs, outvoting those fitted to their tests.

`fitted.py` is the entry. Imports `anatomy`, `code`, `derived/trials.py` and `kinds/evidence.py` of `datasets`.
"""
