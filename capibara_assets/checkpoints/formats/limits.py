"""What a format cannot carry, said in one way: every such entry is counted and the first few are named."""

from collections.abc import Iterable

from capibara_assets.checkpoints.content import Content
from capibara_assets.errors import InputError


def listed(names: Iterable[str], most: int = 5) -> str:
    """`a, b and 7 more`."""
    names = list(names)
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def refuse(target: str, names: Iterable[str], what: str, remedy: str) -> None:
    """Nothing, if there are no names.

    Raises:
        InputError: `target` cannot carry these; what they are, and what to do instead.
    """
    found = list(names)
    if found:
        raise InputError(f"{target} cannot carry {len(found)} {what}: {listed(found)}; {remedy}")


def refuse_metadata(content: Content, target: str) -> None:
    """Raises InputError: the safetensors file it came from has text of its own in its header, which would be lost."""
    own = {key for key in content.origin.get("metadata", {}) if key != "format" and key not in content.ties}
    refuse(
        target,
        sorted(own),
        "entries of the safetensors header's __metadata__",
        "write it as huggingface, or remove them from the file first",
    )
