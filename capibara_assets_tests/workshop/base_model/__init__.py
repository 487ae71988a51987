"""Tests of pre-training and of the base model that it shipped."""
