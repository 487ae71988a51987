"""File formats of execution logs: lines, JSON, notebooks, traces, and the envelope that every format becomes.

Imports the schema and `recording.envelope`; the other folders build on it.
"""
