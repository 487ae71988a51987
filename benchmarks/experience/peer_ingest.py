"""datatrove on the same records: JsonlReader -> PIIFormatter -> ParquetWriter. Run by the bench `ingest`.

    python peer_ingest.py CORPUS OUT WORKERS COMPRESSION

Prints one JSON line: seconds from the first file opened to the last one closed (imports are not counted), processor
time of all processes, rows written.
"""

import json
import resource
import sys
import time
from importlib.metadata import version
from pathlib import Path

import orjson
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.formatters import PIIFormatter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import ParquetWriter
from loguru import logger

KEYS = (
    "sandbox_id",
    "timestamp",
    "template_id",
    "language",
    "exception",
    "execution_count",
    "duration_ms",
    "timeout_s",
)


def adapter(self, data: dict, path: str, id_in_file: int) -> dict:
    """The code is the text; what ran and came out of it goes along as JSON (its shape differs from row to row)."""
    metadata = {key: str(data.get(key)) for key in KEYS} | {"execution": orjson.dumps(data["execution"]).decode()}
    return {"text": data["code"], "id": data["execution_id"], "metadata": metadata}


def main() -> None:
    corpus, out, workers, compression = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    logger.remove()
    executor = LocalPipelineExecutor(
        pipeline=[
            JsonlReader(corpus, adapter=adapter),
            PIIFormatter(),
            ParquetWriter(str(out / "parquet"), compression=compression),
        ],
        tasks=workers,
        workers=workers,
        logging_dir=str(out / "logs"),
        start_method="fork",  # whose processes are ours: their processor time can be told
    )
    started, worked = time.perf_counter(), time.process_time()
    executor.run()
    seconds = time.perf_counter() - started
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = time.process_time() - worked + others.ru_utime + others.ru_stime
    import pyarrow.parquet as pq

    rows = sum(pq.read_metadata(path).num_rows for path in (out / "parquet").rglob("*.parquet"))
    versions = {"datatrove": version("datatrove"), "pyarrow": version("pyarrow")}
    print(json.dumps({"seconds": seconds, "cpu_s": cpu, "rows": rows} | versions))


if __name__ == "__main__":
    main()
