"""Executions as trajectories in formats of others: ATIF and the Agent Data Protocol.

Imports `schema` and, of `formats`, how their readers take what an export tells beside a format's own fields.
"""
