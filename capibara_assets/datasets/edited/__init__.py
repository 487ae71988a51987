"""*repair* examples of agents' edits: a command failed, files were edited, and the same command passed.

Imports `kinds`, `code` and Pygments. `repairs.candidates` makes them of what `changes`, `files` and `places` tell; a
new class of faults is a check and its reason in `soundness`.
"""
