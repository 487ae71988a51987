"""The vote: attestation of adapters, voters in separate processes, signed ballots, and the count.

Imports no sibling but the recipe; `choose` and `certificates` build on it. (Not named `vote`: that is the public
function of the package.)
"""
