"""When assets materialize: sensors, conditions, jobs, and the loop behind `capibara run`.

Imports `assets` and what lies below it; only `definitions` and `cli` import it.
"""
