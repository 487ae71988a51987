"""LoRA training of several voters, in a process of its own."""
