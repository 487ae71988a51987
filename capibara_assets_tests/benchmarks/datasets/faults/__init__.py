"""Tests of the detectors of faults in examples."""
