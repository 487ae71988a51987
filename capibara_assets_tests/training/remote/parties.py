"""Files of a small federation: what the server has, what each client has, and all of it for a simulation."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.storage.jsonfiles import write_json_atomic
from capibara_assets.training.remote.client import OwnMaterials
from capibara_assets.training.standalone.choices import RunOptions
from capibara_assets.training.standalone.run import prepare
from capibara_assets.training.strategies.clients import assign_clients
from capibara_assets.training.strategy import FederatedStrategy
from capibara_assets_tests.modeling.tiny import MODULES
from capibara_assets_tests.training.strategy_runs import train

PRIVATE = {"epsilon": 8.0, "noise_multiplier": 2.0, "clip": 0.2, "seed": 5}
_RECIPE: dict[str, Any] = {
    "name": "federated", "seed": 1,
    "voters": [{"name": "voter", "seed": 0, "shard": 0,
                "strategy": {"kind": "federated", "rounds": 2, "by": "groups", "trained": "b_only"}}],
    "model": {"lora": {"rank": 2, "alpha": 4, "dropout": 0.0, "modules": list(MODULES)}},
    "data": {"max_length": 128},
    "training": {"epochs": 1, "max_steps": 2, "global_batch": 6, "micro_batch_tokens": 150, "learning_rate": 0.01,
                 "evaluate_every": 100},
    "hardware": {"precision": "fp32", "threads": 1},
    "checkpoint": {"every": 100},
}  # fmt: skip
_VERBS = ("Add", "Subtract", "Multiply by", "Divide by", "Shift by", "Round to", "Count to", "Compare with")


@dataclass(frozen=True)
class Parties:
    """Clients whose examples are what a simulation gives them of one file."""

    folder: Path
    base: Path
    clients: int

    def options(self, output: str = "output", **strategy: Any) -> RunOptions:
        """The server's options for a recipe with these changes of its strategy."""
        recipe = json.loads(json.dumps(_RECIPE))
        recipe["voters"][0]["strategy"] |= {"clients": self.clients, **strategy}
        file = self.folder / f"{output}.yaml"
        write_json_atomic(file, recipe)
        return RunOptions(
            recipe=str(file), validation=(self.folder / "validation.jsonl",), output=self.folder / output,
            model=str(self.base),
        )  # fmt: skip

    def data(self, client: str) -> Path:
        return self.folder / f"{client}.jsonl"

    def own(self, client: str) -> OwnMaterials:
        return OwnMaterials(client, (self.data(client),), str(self.base), self.folder / f"work-{client}")

    def simulated(self, **strategy: Any) -> Path:
        """The simulation's result on all clients' examples."""
        options = self.options("simulated", **strategy)
        request, _ = prepare(RunOptions(**{**vars(options), "data": (self.folder / "train.jsonl",)}))
        return train(request)


def chat(number: int, words: str) -> dict[str, Any]:
    answer = f"def add_{number}(x):\n    return x + {number}\n" + "    # done\n" * (number % 4)
    return {"messages": [{"role": "user", "content": f"{words} {number}."}, {"role": "assistant", "content": answer}]}


def save_parties(folder: Path, base: Path, clients: int = 2, words: str = "and") -> Parties:
    """Forty examples, eight of them to validate on; `words` are in each of the others."""
    lines = [
        json.dumps(chat(n, f"{_VERBS[n % 8]} {n * 7919} then write {n * 104729 % 999983} {words if n >= 8 else 'or'}"))
        for n in range(40)
    ]
    (folder / "validation.jsonl").write_text("\n".join(lines[:8]) + "\n")
    (folder / "train.jsonl").write_text("\n".join(lines[8:]) + "\n")
    made = Parties(folder, base, clients)
    options = RunOptions(**{**vars(made.options("split")), "data": (folder / "train.jsonl",)})
    whole, _ = prepare(options, work=folder / "split")
    examples = pl.read_parquet(whole.dataset).filter(pl.col("split") == "train").sort("example_id")
    client_of, _ = assign_clients(examples, FederatedStrategy(clients=clients, by="groups"))
    for client in range(clients):
        own = examples.filter(client_of == client)["messages"]
        text = "".join(json.dumps({"messages": json.loads(one)}) + "\n" for one in own)
        made.data(f"client-{client}").write_text(text)
    return made
