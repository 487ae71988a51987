"""The bench `vote-table`: rules alone on attacked adapters, ours and ByzFL's, and with the vote before."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from benchmarks.consensus.vote.bench import chosen_recipe, open_table
from benchmarks.consensus.vote.figures import write_between
from benchmarks.output import print_result
from benchmarks.peers import peer_environment
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from benchmarks.consensus.vote.game import Entrant, Table
    from capibara_assets.modeling.precision import Precision

COMMAND = "python -m benchmarks vote-table"
# One strength each: ByzFL's own defaults where it has the attack
COLUMNS = (
    ("sign_flip", 1.0), ("alie", 0.5), ("alie", 1.5), ("inner_product", 2.0), ("label_noise", 1.0), ("mimic", 0.01),
    ("nan", 0.0), ("huge_norm", 1e6), ("free_rider", 0.01),
)  # fmt: skip
THEIRS = (
    "mean", "median", "trimmed_mean", "meamed", "krum", "multi_krum", "geometric_median", "mda", "smea", "caf",
    "nnm+trimmed_mean", "nnm+geometric_median",
)  # fmt: skip
OURS = ("geometric_median", "mda", "nnm+trimmed_mean", "nnm+geometric_median")
_LIMIT_S = 120


@dataclass(frozen=True)
class Cell:
    """One rule under one attack.

    Attributes:
        increase: test loss over that of the honest mean, relative; infinite when the result is not finite or there is
            none.
        distance: to the honest mean, relative to its norm.
    """

    increase: float
    distance: float


@click.command("vote-table")
@click.option("--pool", "pool_folder", help="Folder of trained adapters; default: bench-vote in the deployment's home.")
@click.option("--pool-steps", default=60, show_default=True, help="As of `vote`.")
@click.option("--n", default=7, show_default=True, help="Voters, f = floor((n - 1) / 3) of them bad.")
@click.option("--seeds", default=2, show_default=True)
@click.option(
    "--precision", type=click.Choice(["fp32", "bf16"]), default="fp32", show_default=True, help="As of `vote`."
)
@click.option("--compiled", is_flag=True, help="As of `vote`.")
@click.option("--write", "document", help="Markdown file whose marked part is replaced.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def vote_table(
    pool_folder: str | None,
    pool_steps: int,
    n: int,
    seeds: int,
    precision: "Precision",
    compiled: bool,
    document: str | None,
    as_json: bool,
) -> None:
    """ByzFL's rules and ours on the same deltas: distance to the honest mean, and test loss."""
    import torch

    from benchmarks.consensus.vote.pool import PoolRecipe

    torch.set_num_threads(1)
    python, script = peer_environment("consensus/vote/peer_attacks.py")
    table, described = open_table(
        pool_folder, chosen_recipe(None, None), (n,), {"honest", "noise"},
        choose=True, precision=precision, compiled=compiled, trained=PoolRecipe(steps=pool_steps),
    )  # fmt: skip
    cells = measure(table, n, seeds, python, script)
    if document:
        write_between(Path(document), COMMAND, markdown(cells, n, seeds, described))
    shown = {
        row: {column: {"increase": _json(c.increase), "distance": _json(c.distance)} for column, c in found.items()}
        for row, found in cells.items()
    }
    print_result({"n": n, "seeds": seeds, "rules": shown, **described}, as_json)


def measure(table: "Table", n: int, seeds: int, python: Path, script: Path) -> dict[str, dict[str, Cell]]:
    """Row -> attack -> mean over the seeds."""
    from benchmarks.consensus.vote.attacks import ATTACKS
    from benchmarks.consensus.vote.game import entrants_of

    found: dict[str, dict[str, list[Cell]]] = {}
    for name, strength in COLUMNS:
        attack = replace(ATTACKS[name], strengths=(strength,))
        for seed in range(seeds):
            entrants, _ = entrants_of(table, attack, n, seed)
            for row, cell in of_game(table, entrants, python, script).items():
                found.setdefault(row, {}).setdefault(f"{name} {strength:g}", []).append(cell)
    return {
        row: {
            column: Cell(mean(c.increase for c in cells), mean(c.distance for c in cells))
            for column, cells in of.items()
        }
        for row, of in found.items()
    }


def of_game(table: "Table", entrants: "Sequence[Entrant]", python: Path, script: Path) -> dict[str, Cell]:
    """Every rule on one game's vectors."""
    from benchmarks.consensus.vote.game import TEST, consensus_of, judged
    from benchmarks.consensus.vote.losses import key_of
    from capibara_assets.consensus.choose.combining import combine
    from capibara_assets.consensus.election.voting import faults

    f = faults(len(entrants), table.recipe.fault_tolerance)
    honest = [one for one in entrants if not one.bad]
    vectors = np.stack([flattened(one.adapter.deltas()) for one in entrants])
    shapes = {module: tuple(delta.shape) for module, delta in honest[0].adapter.deltas().items()}
    centre = vectors[[not one.bad for one in entrants]].astype(np.float64).mean(axis=0)
    keys = [one.key for one in entrants]

    def judge(row: str, vector: np.ndarray | None) -> Cell:
        if vector is None or not np.isfinite(vector).all():
            return Cell(float("inf"), float("inf"))
        distance = float(np.linalg.norm(vector - centre) / np.linalg.norm(centre))
        loss = table.book.mean(TEST, key_of("vector", row, keys), lambda: unflattened(vector, shapes))
        return Cell(loss / clean - 1, distance)

    clean = table.book.mean(TEST, key_of("vector", "honest mean", keys), lambda: unflattened(centre, shapes))
    found = {
        f"ByzFL {name}": judge(f"ByzFL {name}", vector) for name, vector in theirs(vectors, f, python, script).items()
    }
    finite = [one for one in entrants if np.isfinite(flattened(one.adapter.deltas())).all()]
    left = max(0, f - (len(entrants) - len(finite)))  # as `aggregate` quarantines
    for name in OURS:
        pre, _, rule = name.rpartition("+")
        merged = combine([one.adapter for one in finite], rule, f=left, pre=pre or None).adapter
        found[f"ours {name}, no vote"] = judge(f"ours {name}", flattened(merged.deltas()))
    outcome = judged(table, entrants)
    accepted = [one for one in entrants if one.name in outcome.accepted]
    whole = f"ours {table.recipe.rule}, attestation and vote first"
    for row, chooser in ((whole, None), ("ours, the choice among candidates after them", table.chooser)):
        made = consensus_of(replace(table, chooser=chooser), accepted, outcome.faults_left)
        found[row] = judge(row, flattened(made.deltas()) if len(accepted) >= outcome.quorum else None)
    return found


def theirs(vectors: np.ndarray, f: int, python: Path, script: Path) -> dict[str, np.ndarray | None]:
    """ByzFL's results, None where there is none."""
    with TemporaryDirectory() as folder:
        job = {
            "vectors": f"{folder}/vectors.npy", "f": f, "rules": list(THEIRS), "out": folder, "limit_s": _LIMIT_S,
        }  # fmt: skip
        np.save(job["vectors"], vectors.astype(np.float32))  # type: ignore[arg-type]
        file = Path(folder) / "job.json"
        file.write_text(json.dumps(job), "utf-8")
        done = subprocess.run([str(python), str(script), str(file)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise InputError(f"{script.name} failed: {done.stderr[-500:]}")
        files = {name: Path(folder) / f"{name}.npy" for name in THEIRS}
        return {name: np.load(path) if path.is_file() else None for name, path in files.items()}


def flattened(deltas: "Mapping[str, Tensor]") -> np.ndarray:
    """Weight changes as one vector, float32, modules in the order of their names."""
    return np.concatenate([np.asarray(deltas[module].numpy()).ravel() for module in sorted(deltas)])


def unflattened(vector: np.ndarray, shapes: Mapping[str, tuple[int, ...]]) -> "dict[str, Tensor]":
    """The opposite of `flattened`."""
    import torch

    found, start = {}, 0
    for module in sorted(shapes):
        size = int(np.prod(shapes[module]))
        part = np.ascontiguousarray(vector[start : start + size], dtype=np.float32)
        found[module] = torch.from_numpy(part).reshape(shapes[module])
        start += size
    return found


def markdown(cells: Mapping[str, Mapping[str, Cell]], n: int, seeds: int, described: Mapping[str, Any]) -> str:
    """Two tables: test loss and distance."""
    columns = list(next(iter(cells.values())))
    head = [f"| rule | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]

    def table(show: Callable[[Cell], str]) -> list[str]:
        return [*head, *(f"| {row} | {' | '.join(show(of[c]) for c in columns)} |" for row, of in cells.items())]

    lines = [
        f"n = {n}, f = {(n - 1) // 3}, mean of {seeds} seeds out of {described['pool']['honest']} honest adapters.",
        "",
        "Test loss over that of the honest voters' mean, in percent (–: no finite result):",
        "",
        *table(lambda cell: f"{100 * cell.increase:+.1f}" if np.isfinite(cell.increase) else "–"),
        "",
        "Distance of the result to the honest voters' mean, relative to the norm of that mean:",
        "",
        *table(lambda cell: f"{cell.distance:.3g}" if np.isfinite(cell.distance) else "–"),
    ]
    return "\n".join(lines)


def _json(figure: float) -> float | None:
    return round(figure, 5) if np.isfinite(figure) else None
