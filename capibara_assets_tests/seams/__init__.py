"""Tests across the stages: what one computes or declares the next one uses, in real processes and on real files."""
