"""Programs that attack the grader, and answers broken in one place, for its tests and for the bench `evaluate`."""
