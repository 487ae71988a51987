"""Attestation, voting, robust aggregation, merging and certificates."""
