"""Anonymous memory of saving and loading, over the tensors themselves: RssAnon of a process, watched from outside."""

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ACTIONS = ("save", "load", "save_encrypted", "load_encrypted", "save_compressed", "load_compressed")
_SETTINGS = {"": ("none", False), "_encrypted": ("none", True), "_compressed": ("zstd", False)}
_INTERVAL = 0.002
_MIB = 1 << 20


def measure_memory(folder: Path, sizes: tuple[int, ...]) -> dict[str, Any]:
    """`memory_over_tensors_mib`: the most anonymous memory beyond the tensors, over all actions and sizes.

    Counted is what the process holds at its peak, less the bytes of the tensors, less what Python and torch held
    before (`interpreter_mib`; a tiny save and load has been made by then, so that threads and imports are there).
    """
    found: dict[str, dict[str, float]] = {action: {} for action in ACTIONS}
    interpreter = 0.0
    for size in sizes:
        for setting in _SETTINGS:
            with TemporaryDirectory(dir=folder) as store:
                for action in (f"save{setting}", f"load{setting}"):
                    over, before = _watch(Path(store), action, size)
                    found[action][str(size // _MIB)] = round(over / _MIB, 1)
                    interpreter = max(interpreter, before / _MIB)
    most = max(over for each in found.values() for over in each.values())
    return {
        "memory_over_tensors_mib": most,
        "memory_over_tensors_and_interpreter_mib": round(most + interpreter, 1),
        "interpreter_mib": round(interpreter, 1),
        "memory_by_action_and_size_mib": found,
        "sampled_every_s": _INTERVAL,
    }


def _watch(store: Path, action: str, size: int) -> tuple[int, int]:
    """(bytes over tensors and interpreter at the peak, bytes of the interpreter) of one action in its own process."""
    code = "import sys; from benchmarks.checkpoints.memory import act; act(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(store), action, str(size)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        ready = json.loads(child.stdout.readline() or "null")
        if ready is None:
            raise RuntimeError(f"{action} failed: its traceback is above")
        before = anonymous(child.pid)
        child.stdin.write("go\n")
        child.stdin.flush()
        peak = before
        while child.poll() is None:
            peak = max(peak, anonymous(child.pid))
            time.sleep(_INTERVAL)
        if child.returncode:
            raise RuntimeError(f"{action} failed ({child.returncode}): its traceback is above")
    held, given = ready["held"], ready["given"]  # tensors there before, tensors there at the end
    return peak - given - (before - held), before - held


def act(folder: str, action: str, bytes_of_tensors: str) -> None:
    """The child's part: everything ready, then told to go, one save or load."""
    from capibara_assets.checkpoints.store.store import CheckpointStore
    from capibara_assets_tests.checkpoints.drills.states import large_state, small_state, tensors_of, throwaway_vault

    size = int(bytes_of_tensors)
    name = next(each for each in _SETTINGS if action in (f"save{each}", f"load{each}"))
    compression, encrypted = _SETTINGS[name]
    vault = throwaway_vault() if encrypted else None
    store = CheckpointStore(folder, vault=vault, compression=compression)  # type: ignore[arg-type]
    store.load(store.save(small_state(1, 1), 1, "warm"))
    state = large_state(size) if action.startswith("save") else None
    held = sum(tensor.nbytes for tensor in tensors_of(state)) if state is not None else 0
    sys.stdout.write(json.dumps({"held": held, "given": held or size}) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()
    if state is not None:
        store.save(state, 1, "bench")
    else:
        loaded = store.load("bench@latest")
        if sum(tensor.nbytes for tensor in tensors_of(loaded)) != size:
            raise RuntimeError("loaded another size than was saved")


def anonymous(pid: int) -> int:
    """RssAnon of a process and its children, bytes; 0 once it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        children = [int(each) for path in Path(f"/proc/{pid}/task").iterdir() for each in
                    (path / "children").read_text().split()]  # fmt: skip
    except (FileNotFoundError, ProcessLookupError):
        return 0
    lines = [line for line in status.splitlines() if line.startswith("RssAnon")]
    own = int(lines[0].split()[1]) * 1024 if lines else 0  # a process that is ending has none
    return own + sum(map(anonymous, children))
