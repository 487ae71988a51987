"""When assets materialize: sensors, automation conditions, jobs, and the loop of `capibara run`.

Imports `assets` and what lies below it; only `definitions` and `cli` import it.
"""
