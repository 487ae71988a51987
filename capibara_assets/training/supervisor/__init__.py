"""Supervises the processes of a training: one per voter, restarted when killed, assembled when enough finish.

Imports `plan`, `strategies`, `loop`, `exporters` and what lies below them.
"""
