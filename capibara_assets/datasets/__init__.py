"""Training examples from verified executions: groups, splits, examples, routing, tokens."""
