"""What a home knows of its runs: the experience that they read, so that its later commands read the same."""

import json
from pathlib import Path

from capibara_assets.deployment.documents import read_document
from capibara_assets.errors import InputError, IntegrityError

EXPERIENCE, FOLDER = Path("runs", "experience.json"), "folder"
"""The file in a home, and its only key."""


def kept_experience(home: Path) -> str:
    """The folder or address of the experience that the latest run in a home read; empty: what ships, or no run yet.

    Raises:
        IntegrityError: the file is damaged.
    """
    try:
        document = json.loads(read_document(home / EXPERIENCE))
        folder = document[FOLDER] if isinstance(document, dict) else None
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (InputError, ValueError, KeyError, RecursionError) as error:
        raise _damaged(home, str(error)) from error
    if not isinstance(folder, str):
        raise _damaged(home, f"no {FOLDER}")
    return folder


def _damaged(home: Path, why: str) -> IntegrityError:
    return IntegrityError(
        f"{home / EXPERIENCE} does not say which experience the runs of this home read ({why}): remove it, and name"
        " the folder to the next `capibara run --experience`"
    )
