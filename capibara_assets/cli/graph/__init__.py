"""Commands on the asset graph: run it, report on it, open the UI, manage background runs.

Imports the libraries and the graph; the other groups of commands may import it.
"""
