"""From an artifact to what it was made from, and back."""
