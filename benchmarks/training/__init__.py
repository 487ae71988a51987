"""Benches of training beside TRL's, and training of many voters in one pass over one base."""
