"""What is served: the pointer document, the promotion log, model cards, and exports for servers.

Imports nothing of its siblings.
"""
