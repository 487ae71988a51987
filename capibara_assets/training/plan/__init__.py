"""Plans and checks a training before it starts: memory, time, files, cost.

Imports `data`, `step`, `strategies`, `monitoring` and, for a probe, `loop`.
"""
