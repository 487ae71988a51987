"""A mixture of experts made of the domains' adapters: layout, training of its gates, losses.

Imports `choose` and `merging`.
"""
