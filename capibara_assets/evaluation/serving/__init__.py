"""What is served: the promotion history, model cards, and exports for servers.

Imports nothing of its siblings.
"""
