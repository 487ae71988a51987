"""Benches of reading experience: ingest, recorder, redaction, domains and repairs, consolidation, sensor, replay."""
