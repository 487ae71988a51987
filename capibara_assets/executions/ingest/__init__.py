"""Ingest: turns a folder of logs into tables, reading only new files, in parallel, each execution exactly once.

Imports `formats`, `secrets`, `labels`, `patterns` and the modules beside this folder.
"""
