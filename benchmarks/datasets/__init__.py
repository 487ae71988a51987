"""Benches of datasets: the whole build, near-duplicates, what straddles splits, tokens and packs."""
