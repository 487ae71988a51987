"""Tests of capibara_assets.consensus.rounds."""
