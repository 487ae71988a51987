"""Playbooks: read every ACE family, judge the agents, merge and rank their bullets, render them for a context."""
