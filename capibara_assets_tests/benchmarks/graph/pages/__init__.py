"""Tests of the bench of Dagster's pages."""
