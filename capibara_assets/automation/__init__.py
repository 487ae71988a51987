"""When assets materialize: sensors, automation conditions, jobs, and the tasks of `capibara run` with their processes.

Imports `assets` and what lies below it; only `definitions` and `cli` import it.
"""
