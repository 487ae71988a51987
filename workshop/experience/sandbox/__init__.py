"""The sandbox in which the authored tasks run: E2B's interface on processes of this machine."""
