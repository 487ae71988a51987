"""From the accepted voters to one adapter: candidates (voters, robust aggregate, mixture, soups) and the best of them.

Imports `aggregation` and `vote`.
"""
