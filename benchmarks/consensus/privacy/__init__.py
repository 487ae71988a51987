"""The bench `privacy`: loss under differential privacy of clients and of examples."""
