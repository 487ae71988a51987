"""The bench of evaluation: generation, statistics, and hostile programs (which are beside the tests)."""
