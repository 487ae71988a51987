"""Protection against poisoned experience: caps one author's share and holds back possible back doors.

`share.py` caps, `signs.py` and `forms.py` read texts, `rare.py` and `triggers.py` search, `held.py` says
what is held back and why.
Imports the recipe and `placing` of `datasets`.
"""
