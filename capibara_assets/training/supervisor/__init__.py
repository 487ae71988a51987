"""The processes of a training: one per voter, restarted when they die, published when enough finish.

Imports `plan`, `strategies` and `loop`.
"""
