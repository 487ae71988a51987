"""The small store by hand of the lineage tests, for commands that trace through it; `made` is the real home here."""

from capibara_assets_tests.lineage.conftest import made as by_hand

__all__ = ["by_hand"]
