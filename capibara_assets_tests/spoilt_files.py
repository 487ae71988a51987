"""Files of a store or home in whose place something else stands."""

import os
from pathlib import Path


def put_in_place(file: Path, what: str) -> None:
    """Puts "a pipe", "a device" that never ends, or else `what` as the text, in place of a file."""
    file.unlink()
    if what == "a pipe":
        os.mkfifo(file)
    elif what == "a device":
        file.symlink_to("/dev/zero")
    else:
        file.write_text(what)
