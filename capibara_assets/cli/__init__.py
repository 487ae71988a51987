"""The `capibara` command."""
