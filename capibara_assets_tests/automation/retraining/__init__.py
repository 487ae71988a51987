"""Tests of `capibara_assets.automation.retraining`."""
