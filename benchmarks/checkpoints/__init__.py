"""Benches of the checkpoint store: speed, memory, disk, stall, and crashes (whose drills are beside the tests)."""
