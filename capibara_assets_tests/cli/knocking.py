"""A process that calls commands one after the other, as a JSON line of words asks, and tells what each did.

It is none that was forked: what reads tables has threads, which a forked process waits for, for ever.
"""

import json
import os
import sys
import tempfile
import time

from capibara_assets.cli.main import main


def called(words: list[str], captured: int) -> dict[str, object]:
    """Exit code, seconds of processor time, and all that was printed."""
    os.ftruncate(captured, 0)
    os.lseek(captured, 0, os.SEEK_SET)
    sys.argv, began, code = ["capibara", *words], time.process_time(), 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException as error:  # noqa: BLE001 - a defect, which is told
        print(f"Traceback: {type(error).__name__}: {str(error)[:300]}")
        code = 1
    seconds = time.process_time() - began
    sys.stdout.flush()
    sys.stderr.flush()
    return {"code": code, "seconds": seconds, "said": os.pread(captured, 1 << 20, 0).decode("utf-8", "replace")}


def serve() -> None:
    """Answer each line of the standard input on the standard output, where no command can print."""
    asked, told = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    with tempfile.TemporaryFile() as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for line in asked:
            print(json.dumps(called(json.loads(line), file.fileno())), file=told, flush=True)


if __name__ == "__main__":
    serve()
