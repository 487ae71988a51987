"""Files of torch.save with other members than torch wrote."""

import zipfile
from collections.abc import Callable
from pathlib import Path


def rewritten(path: Path, change: Callable[[str, bytes], bytes]) -> None:
    """The archive with other members, each with the checksum of what it holds."""
    with zipfile.ZipFile(path) as archive:
        members = [(one.filename, archive.read(one)) for one in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, change(name, content))
