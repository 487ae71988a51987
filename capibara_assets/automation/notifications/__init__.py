"""Messages to people's webhooks: failed checks, changes of what is served, rejected voters, a budget that is spent."""
