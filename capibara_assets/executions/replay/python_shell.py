"""The IPython shell of re-executed Python: runs cells as an ipykernel does, without its sockets.

Cells run in IPython's InteractiveShell within a running event loop; the display hook and publisher put what would be
sent into a list. Standard output is a file in memory, so that child processes write there, too. Imports nothing but the
standard library and IPython: `python_worker.py` imports it as a script inside the sandbox.
"""

import asyncio
import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

MOST_TEXT = 8 << 20  # characters of one text that are sent back
Json = dict[str, Any]


def make_shell() -> Any:
    """An IPython shell as in an ipykernel, which collects its messages in `shell.sent` instead of sending them."""
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets import Type
    from traitlets.config import Config

    sent: list[Json] = []

    class Hook(DisplayHook):
        def start_displayhook(self) -> None:
            pass

        def write_output_prompt(self) -> None:
            pass

        def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
            sent.append({"text": format_dict.get("text/plain"), "main": True})

        def finish_displayhook(self) -> None:
            pass

    class Publisher(DisplayPublisher):
        def publish(self, data: Any, *args: Any, update: bool = False, **more: Any) -> None:
            if not update:
                sent.append({"text": data.get("text/plain"), "main": False})

        def clear_output(self, wait: bool = False) -> None:
            pass

    class Shell(InteractiveShell):
        displayhook_class = Type(Hook)
        display_pub_class = Type(Publisher)

        def showtraceback(self, *args: Any, **more: Any) -> None:
            """Keeps the exception; formatting its traceback would take longer than most sessions."""
            given = args[0][1] if args and args[0] else None
            self.raised = given or sys.exc_info()[1]

        def _format_exception_for_storage(self, *args: Any, **more: Any) -> dict[str, Any]:
            return {}  # nor is the history kept

        def showsyntaxerror(self, *args: Any, **more: Any) -> None:
            self.raised = sys.exc_info()[1]

    config = Config()
    config.HistoryManager.enabled = False  # its thread would not survive the fork
    config.InteractiveShell.autoindent = False
    os.environ.update(TERM="xterm-color", CLICOLOR="1", FORCE_COLOR="1", PAGER="cat", GIT_PAGER="cat")
    shell: Any = Shell.instance(config=config)
    shell.display_formatter.active_types = ["text/plain"]  # the others are not compared
    shell.sent = sent
    shell.raised = None
    return shell


def warm_up(shell: Any, preload: list[str]) -> None:
    """Runs cells, so that one-time initialisation happens before the forks, then resets the shell."""
    cells = ["1", "await __import__('asyncio').sleep(0)", "def f(x):\n    return [x]\nclass C: pass\nf({'a': C})"]
    if "pandas" in preload:
        cells.append("__import__('pandas').DataFrame({'a': [1.5], 'b': ['x']}).describe()")
    loop = asyncio.new_event_loop()
    for cell in cells:
        loop.run_until_complete(run_cell(shell, cell))
    loop.close()
    shell.reset(new_session=True)
    shell.sent.clear()
    shell.raised = None


def run_cells(shell: Any, cells: Sequence[str], begin_cell: Callable[[int], None]) -> Json:
    """Runs cells in one shell, until one raises; returns the results and output of the last one that ran.

    Args:
        begin_cell: called with the number of each cell before it runs.
    """
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        raw = io.FileIO(descriptor, "w", closefd=False)
        stream = io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "surrogatepass", newline="\n")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.register_at_fork(before=flush)  # what stands in a buffer would be written twice
    sys.path.insert(0, "")
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop.run_until_complete(_run_cells(shell, cells, begin_cell))


def flush() -> None:
    """Flushes both output streams."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError, OSError):  # closed by the session, or its file is full
            stream.flush()


async def _run_cells(shell: Any, cells: Sequence[str], begin_cell: Callable[[int], None]) -> Json:
    begin = (0, 0)
    for index, cell in enumerate(cells):
        flush()
        begin = os.fstat(1).st_size, os.fstat(2).st_size
        shell.sent.clear()
        shell.raised = None
        begin_cell(index)
        await run_cell(shell, cell)
        if shell.raised is not None:
            break
    flush()
    return {
        "results": [each for each in shell.sent if isinstance(each["text"], str)],
        "stdout": written(1, begin[0]),
        "stderr": written(2, begin[1]),
        "error": None if shell.raised is None else described(shell.raised),
    }


async def run_cell(shell: Any, cell: str) -> None:
    """Runs one cell as an ipykernel does: within a running event loop, awaited when it awaits."""
    preprocessing = None
    try:
        transformed = shell.transform_cell(cell)
    except Exception:  # noqa: BLE001 (the cell's own fault: the shell reports it)
        transformed, preprocessing = cell, sys.exc_info()
    awaits = shell.should_run_async(cell, transformed_cell=transformed, preprocessing_exc_tuple=preprocessing)
    running = shell.run_cell_async(
        cell, store_history=True, transformed_cell=transformed, preprocessing_exc_tuple=preprocessing
    )
    try:
        if awaits:
            await running
        else:
            with suppress(StopIteration):  # it never awaits, so this is all of it
                running.send(None)
    except BaseException as error:  # noqa: BLE001 (SystemExit and its like end the cell, not the session)
        shell.raised = error
    shell.events.trigger("post_execute")


def written(descriptor: int, begin: int) -> str:
    """The text written to a stream since `begin`."""
    size = os.fstat(descriptor).st_size
    if size - begin > MOST_TEXT:
        raise MemoryError
    return os.pread(descriptor, size - begin, begin).decode("utf-8", "replace")


def described(raised: BaseException) -> Json:
    """Describes an exception: its name, message and bases and, where Python gives it, the missing name."""
    with suppress(Exception):  # a class of the session's own may fail to print itself
        value = str(raised)[:2000]
        missing = getattr(raised, "name", None) if isinstance(raised, ImportError | NameError) else None
        bases = [base.__name__ for base in type(raised).__mro__]
        number = getattr(raised, "errno", None) if isinstance(raised, OSError) else None
        return {
            "name": type(raised).__name__,
            "value": value,
            "missing": missing if isinstance(missing, str) else None,
            "bases": bases,
            "errno": number if isinstance(number, int) else None,
        }
    return {"name": type(raised).__name__, "value": "", "missing": None}
