"""Detectors of faults in queries, read with sqlglot; they share no code with what builds examples."""
