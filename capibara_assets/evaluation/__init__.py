"""Losses of all contenders on the same held-out examples, the decision, the router."""
