"""When it happens: sensors, conditions, jobs."""
