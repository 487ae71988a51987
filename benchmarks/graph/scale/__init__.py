"""A week at a billion executions a day, simulated from measured unit costs (docs/scale.md)."""
