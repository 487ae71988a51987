"""Model shapes and dataset statistics that the planning tests share."""

from typing import Any

from capibara_assets.planning.models import ModelShape

NANO = ModelShape(
    name="nano",
    architecture="llama",
    layers=6,
    hidden=256,
    heads=4,
    kv_heads=4,
    head_dim=64,
    intermediate=688,
    vocabulary=4096,
    context=2048,
    tied=True,
    norm_epsilon=1e-5,
)
# A dense model of about 120 B parameters, wider than any GPU's memory in 16 bits.
DENSE_120B = ModelShape(
    name="dense-120b",
    architecture="llama",
    layers=96,
    hidden=10240,
    heads=80,
    kv_heads=8,
    head_dim=128,
    intermediate=32000,
    vocabulary=128000,
    context=8192,
)


def statistics(train: int = 450, p95_chars: float = 900.0, difficulty: float = 0.3) -> dict[str, Any]:
    return {
        "examples": train + 110,
        "by_split": {"train": train, "validation": 60, "test": 50},
        "by_kind": {"solve": train + 110},
        "chars": {"p50": p95_chars / 3, "p95": p95_chars, "max": 4 * p95_chars},
        "difficulty": {"mean": difficulty, "histogram": [train + 110]},
    }
