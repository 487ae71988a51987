"""Errors for content that a format cannot store: entries are counted, and the first few are named."""

from collections.abc import Iterable

from capibara_assets.checkpoints.content import Content
from capibara_assets.errors import InputError, named


def listed(names: Iterable[str], most: int = 5) -> str:
    """`a, b and 7 more`; names out of files are cut and printable."""
    names = list(names)
    rest = len(names) - most
    return ", ".join(map(named, names[:most])) + (f" and {rest} more" if rest > 0 else "")


def refuse(target: str, names: Iterable[str], what: str, remedy: str) -> None:
    """Raise if there are names that `target` cannot store.

    Args:
        what: what the names are, for the message.
        remedy: what to do instead.

    Raises:
        InputError: there is at least one name.
    """
    entries = list(names)
    if entries:
        raise InputError(f"{target} cannot carry {len(entries)} {what}: {listed(entries)}; {remedy}")


def refuse_metadata(content: Content, target: str) -> None:
    """Raise InputError if the source's safetensors header has its own metadata, which would be lost."""
    own = {key for key in content.origin.get("metadata", {}) if key != "format" and key not in content.ties}
    refuse(
        target,
        sorted(own),
        "entries of the safetensors header's __metadata__",
        "write it as huggingface, or remove them from the file first",
    )
