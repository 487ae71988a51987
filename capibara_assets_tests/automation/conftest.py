"""What the tests of this folder share."""

from capibara_assets_tests import unsynced

__all__ = ["unsynced"]
