"""Settings of a process that is about to import and compute much; imports nothing that takes time."""

import gc
import os
import sys
import warnings

# oneDNN keeps as many compiled kernels. With its default, bf16 batches of ever new lengths cost hundreds of MB; with
# too few, the shapes that come again (modeling/cpu/blocks.py) are compiled each time.
KERNELS = "512"
# Threads that wait for work sleep instead of spinning: on a busy machine spinning costs several times the work.
VARIABLES = {"OMP_WAIT_POLICY": "PASSIVE", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": KERNELS}
# glibc asks the system for each large tensor and returns it after use; kept, its pages are not zeroed again.
_KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
_COLLECT_EVERY = (20_000, 20, 50)  # imports make hundreds of thousands of objects, of which none is garbage


def set_up_process() -> None:
    """Reduce garbage collection, make no warning an error, and set defaults of variables that libraries read."""
    _show_warnings()
    gc.set_threshold(*_COLLECT_EVERY)
    for name, value in VARIABLES.items():
        os.environ.setdefault(name, value)


def set_up_trainings() -> None:
    """As `set_up_process`, for processes started from this one that allocate the same large tensors in each step."""
    set_up_process()
    for name, value in _KEEP_MEMORY.items():
        os.environ.setdefault(name, value)


def _show_warnings() -> None:
    """Show the warnings that PYTHONWARNINGS or -W make errors, here and in processes started from here.

    Libraries warn when they are imported and used: as an error, the first of them would end a command.
    """
    if not any(_is_error(option) for option in sys.warnoptions):
        return
    sys.warnoptions[:] = [_shown(option) for option in sys.warnoptions]
    os.environ["PYTHONWARNINGS"] = ",".join(sys.warnoptions)
    warnings.simplefilter("default")


def _is_error(option: str) -> bool:
    action = option.partition(":")[0].strip()  # Python takes its beginning, too
    return bool(action) and "error".startswith(action)


def _shown(option: str) -> str:
    return "default" + option[len(option.partition(":")[0]) :] if _is_error(option) else option
