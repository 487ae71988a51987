"""Choice of one adapter among the accepted voters, their robust aggregate, mixture and soups, by validation loss.

Imports `aggregation` and `election`.
"""
