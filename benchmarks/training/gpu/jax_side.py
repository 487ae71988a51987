"""The JAX side of the bench `gpu`, a process of its own: `python -m benchmarks.training.gpu.jax_side JOB`.

JOB is a JSON file: base, examples (parquet), out, steps, sequences, rank, alpha, modules, warm. Prints one JSON line.
"""

import json
import statistics
import sys
from pathlib import Path

SEQUENCE = 512


def main() -> None:
    """Train by the JAX trainer; the first steps, which compile, are not timed."""
    job = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    import jax
    import polars as pl

    from capibara_assets.planning.models import read_shape
    from capibara_assets.planning.writers.jax_config import JaxConfig
    from capibara_assets.training.jax.places import METRICS
    from capibara_assets.training.jax.trainer import train

    out = Path(job["out"])
    out.mkdir(parents=True)
    rows = pl.read_parquet(job["examples"]).filter(pl.col("split") == "train")["messages"].to_list()
    data = out / "train.jsonl"
    data.write_text("".join(f'{{"messages": {messages}}}\n' for messages in rows), "utf-8")
    config = JaxConfig.model_validate(
        {
            "domain": "python",
            "model": read_shape(Path(job["base"])).model_dump(),
            "base": job["base"],
            "data": str(data),
            "output": str(out / "trained"),
            "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
            "sequences": job["sequences"],
            "sequence": SEQUENCE,
            "remat": "none",
            "method": "lora",
            "lora": {"rank": job["rank"], "alpha": float(job["alpha"]), "modules": job["modules"]},
            "schedule": {"peak": 3e-3, "kind": "constant"},
            "steps": job["steps"],
            "save_every": job["steps"],
            "compute_dtype": "bfloat16",
            "logit_chunks": 8,
        }
    )
    done = train(config)
    told = [json.loads(line) for line in (done.folder / METRICS).read_text("utf-8").splitlines()]
    lines = [line for line in told if "seconds" in line]  # others tell of the compilation and of validations
    steady = statistics.median(line["seconds"] for line in lines[job["warm"] :] or lines)
    result = {
        "platform": jax.default_backend(),
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "steps": len(lines),
        "first_step_s": round(lines[0]["seconds"] + sum(line.get("compile_seconds", 0.0) for line in told), 3),
        "step_s": round(steady, 4),
        "slots_per_s": round(job["sequences"] * SEQUENCE / steady),  # tokens and padding: rows have one length
        "first_loss": round(done.losses[0], 4),
        "last_loss": round(done.losses[-1], 4),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
