"""Playbooks of agents: reads every format, decides which agents graduate, merges and ranks their bullets.

Imports `storage` and what lies below it; never Dagster.
"""
