"""*repair* examples of agents' edits: a command failed, files were edited, and the same command passed."""
