"""Mixture of experts from the domains' adapters: Mixtral layout, gate training, and losses compared.

Imports `choose` and `merging`.
"""
