"""The bench `colluders`: what f voters who act as one reach against the loss, with a trigger, and against a slice."""
