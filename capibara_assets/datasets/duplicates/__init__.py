"""Equal and near-equal documents: shingles, candidate pairs, clusters, and items of public benchmarks.

Imports `code` and the recipe of `datasets`.
"""
