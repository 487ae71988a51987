"""Playbooks of agents: reading every format, judging the agents, merging and ranking their advice.

Imports `storage` and what lies below it; never Dagster.
"""
