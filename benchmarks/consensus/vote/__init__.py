"""The benches `vote` and `vote-table`: games of honest and bad voters out of a pool of trained adapters."""
