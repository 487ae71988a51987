"""Foreign text shown to people: one function per language that shows it, so that none of it acts as that language.

Text of logs, playbooks, models and voters is data wherever it is shown: in Dagster's Markdown, in HTML and SVG, in a
terminal, in a spreadsheet. Every package may import this one; it imports nothing of the project.
"""
