"""The vote: attestation of adapters, voters in processes of their own, signed ballots, the count.

Imports no sibling but the recipe; `choose` and `certificates` build on it.
"""
