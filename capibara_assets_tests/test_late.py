"""A library that is imported late: not when pytest looks at what a module holds, but when a test uses it."""

import pytest

from capibara_assets_tests.late import Late


def test_what_pytest_asks_everything_imports_nothing() -> None:
    asked = Late("no_such_library")
    assert not any(hasattr(asked, name) for name in ("__test__", "__wrapped__", "__bases__", "_mock_name"))
    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        asked.array  # noqa: B018 - the access imports
