"""Crashes, full disks, lost power, flipped bits of a checkpoint store: for its tests and for the bench `checkpoint`."""
