"""The bench `privacy`: what differential privacy costs in loss, by epsilon and by what is trained.

Clients: one round; each of them trains once for each set of trained numbers, without looking at any epsilon; the same
clients' changes are then clipped, noised and put together by the product's own federated training for every epsilon.
The clip is the median length of these very changes, so the figures flatter: a deployment has to know it beforehand.
The arms without clients are in `private_sgd.py`.
"""

import json
import math
import os
import shutil
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from benchmarks.consensus.privacy.inputs import DELTA, at_rank, base_request, go_on, measured, say, with_strategy
from benchmarks.consensus.privacy.private_sgd import EXAMPLE_ARMS, measure_example_arm
from benchmarks.experience_input import bench_input
from benchmarks.output import print_result

if TYPE_CHECKING:
    from capibara_assets.training.request import TrainingRequest

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
ARMS = {  # what is trained, rank, learning rate
    "b_only": ("b_only", 8, 6e-3),
    "scales": ("scales", 8, 2e-2),
    "scales, rank 1": ("scales", 1, 4e-2),
    "factors": ("factors", 8, 6e-3),
}
NAMES = [*ARMS, *EXAMPLE_ARMS]
_TEMPLATE = "clients-trained"


@click.command("privacy")
@click.option("--experience", help="Folder of experience; default: the shared collection, else what ships.")
@click.option("--arm", "arms", multiple=True, type=click.Choice(NAMES), help="Only this; may be repeated.")
@click.option("--clients", "cohorts", multiple=True, default=(20,), show_default=True, help="May be repeated.")
@click.option("--epsilon", "epsilons", multiple=True, type=float, default=EPSILONS, help="Only this; may be repeated.")
@click.option("--examples", default=160, show_default=True, help="Train examples, shared out to the clients.")
@click.option("--draws", default=3, show_default=True, help="Draws of the noise for each point.")
@click.option("--work", type=click.Path(path_type=Path), help="Folder that is gone on from; default: a temporary one.")
@click.option("--svg", type=click.Path(path_type=Path), help="Write the plot here.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def privacy(
    experience: str | None, arms: tuple[str, ...], cohorts: tuple[int, ...], epsilons: tuple[float, ...],
    examples: int, draws: int, work: Path | None, svg: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Validation loss under differential privacy of clients or examples, against epsilon, by what is trained."""
    began = time.monotonic()
    given = bench_input(experience, None)
    with TemporaryDirectory() as temporary:
        home = work or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        request = base_request(given, home, examples)
        found = {}
        for arm in arms or NAMES:
            if arm in EXAMPLE_ARMS:
                found[arm] = measure_example_arm(arm, request, home, epsilons, draws)
                continue
            for clients in cohorts:
                name = arm if len(cohorts) == 1 else f"{arm}, {clients} clients"
                found[name] = measure_arm(arm, request, home, clients, epsilons, draws)
    result = {
        "arms": found, "clients": list(cohorts), "rounds": 1, "delta": DELTA, "examples": examples, "draws": draws,
        "experience": given.name, "base": request.base_model.name, "seconds": round(time.monotonic() - began, 1),
        "load_average": os.getloadavg()[0],
    }  # fmt: skip
    if svg:
        from benchmarks.consensus.privacy.plot import privacy_svg

        svg.write_text(privacy_svg(result), "utf-8")
    print_result(result, as_json)


def measure_arm(
    arm: str, request: "TrainingRequest", home: Path, clients: int, epsilons: Sequence[float], draws: int
) -> dict[str, Any]:
    """All epsilons of one set of trained numbers; what `home` has already is not measured again."""
    from capibara_assets.training.strategies.privacy import dp_noise_multiplier, predicted_snr

    trained, rank, rate = ARMS[arm]
    request = at_rank(request, rank, rate)
    place = home / f"{trained}-{rank}-{clients}-{request.dataset_digest[:8]}"
    choice = {"kind": "federated", "clients": clients, "rounds": 1, "local_epochs": 2.0, "trained": trained}
    lengths = trained_clients(request, choice, place)
    clip = statistics.median(lengths)

    def made(privacy: dict[str, Any] | None) -> dict[str, Any]:
        return put_together(request, choice | ({"privacy": privacy} if privacy else {}), place)

    points, manifest, numbers = measured(place, epsilons, draws, clip, made)
    at_one = dp_noise_multiplier(1.0, 1.0, 1, DELTA)
    return {
        "trained": trained,
        "rank": rank,
        "dimensions": numbers,
        "clip": round(clip, 4),
        "lengths": [round(min(lengths), 4), round(max(lengths), 4)],
        "base_loss": round(manifest["base_validation_loss"], 4),
        "points": points,
        "clients_for_snr_1_at_epsilon_1": math.ceil(clients / predicted_snr(1.0, at_one, clients, numbers).snr)
        if numbers
        else None,
    }


def trained_clients(request: "TrainingRequest", choice: dict[str, Any], place: Path) -> list[float]:
    """Train the clients of the only round, or go on with them; the lengths of their changes.

    They begin with B = 0, so a change is what the client holds: the product, or B.
    """
    from capibara_assets.modeling.adapters import read_adapter
    from capibara_assets.training.data.voter_run import VoterRun
    from capibara_assets.training.monitoring.events import EventLog
    from capibara_assets.training.strategies.federated import federate, train_clients

    request, voter, strategy = with_strategy(request, choice)
    folder = place / _TEMPLATE
    federation = federate(VoterRun(request, voter, folder, say, go_on), strategy)
    log = EventLog(folder / "events.jsonl", run="bench", listener=say)
    lengths = []
    for name in train_clients(federation, 1, log, None):
        adapter = read_adapter(folder / name / "result")
        parts = [
            adapter.delta(module) if strategy.trained == "factors" else adapter.b(module) for module in adapter.modules
        ]
        lengths.append(math.sqrt(math.fsum(float(part.double().square().sum()) for part in parts)))
    return lengths


def put_together(request: "TrainingRequest", choice: dict[str, Any], place: Path) -> dict[str, Any]:
    """The round's end by federated training itself, on links to the trained clients: its manifest."""
    from capibara_assets.training.data.voter_run import VoterRun
    from capibara_assets.training.strategies.federated import train_federated

    request, voter, strategy = with_strategy(request, choice)
    folder = place / "putting-together"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place / _TEMPLATE, folder, copy_function=os.link)
    (folder / "events.jsonl").unlink()  # a log is appended to
    found = train_federated(VoterRun(request, voter, folder, say, go_on), strategy)
    manifest: dict[str, Any] = json.loads((found / "manifest.json").read_text("utf-8"))
    shutil.rmtree(folder)
    return manifest
