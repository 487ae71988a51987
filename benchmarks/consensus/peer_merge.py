"""mergekit on the same checkpoints, through its library entry. Run by the bench `merge`, which stays in touch:

    python peer_merge.py

Reads requests, one JSON line each: {"config", "out", "settings"} (a mergekit configuration, the folder to make, its
MergeOptions), and answers each with {"seconds", "cpu_s", "synced_seconds"}: from the call to the files written, the
processor's share of it, and to the files on disk, which mergekit leaves to the kernel. Imports come before the first
request: start-up counts for nobody.
"""

import json
import logging
import os
import sys
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)


def merge(request: dict[str, object]) -> dict[str, float]:
    from mergekit.config import MergeConfiguration
    from mergekit.merge import run_merge
    from mergekit.options import MergeOptions

    config = MergeConfiguration.model_validate(request["config"])
    settings = {"quiet": True, "write_model_card": False, "copy_tokenizer": False, "random_seed": 7}
    options = MergeOptions(**{**settings, **request["settings"]})
    options.apply_global_options()
    started, cpu = time.perf_counter(), time.process_time()
    run_merge(config, out_path=str(request["out"]), options=options)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    for path in Path(str(request["out"])).iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return {"seconds": seconds, "cpu_s": cpu, "synced_seconds": time.perf_counter() - started}


def main() -> None:
    import torch

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints is no answer
    print(json.dumps({"ready": torch.__version__}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(merge(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
