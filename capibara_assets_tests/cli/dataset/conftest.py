"""The small store by hand of the lineage tests, for the commands that trace through it."""

from capibara_assets_tests.lineage.conftest import made

__all__ = ["made"]
