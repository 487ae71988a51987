"""`capibara bench privacy`: what differential privacy costs in loss, by epsilon and by what is trained.

Clients: one round; each of them trains once for each set of trained numbers, without looking at any epsilon; the same
clients' changes are then clipped, noised and put together by the product's own federated training for every epsilon.
The clip is the median length of these very changes, so the figures flatter: a deployment has to know it beforehand.
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

from capibara_assets.cli.bench_experience import bench_input
from capibara_assets.cli.bench_output import print_result

if TYPE_CHECKING:
    from capibara_assets.training.request import TrainingRequest
    from capibara_assets.training.strategies import Federated

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
ARMS = {  # what is trained, rank, learning rate
    "b_only": ("b_only", 8, 6e-3),
    "scales": ("scales", 8, 2e-2),
    "scales, rank 1": ("scales", 1, 4e-2),
    "factors": ("factors", 8, 6e-3),
}
DELTA = 1e-5
_LONGEST = 192  # tokens of an example: short ones, so that a client takes seconds
_JUDGED = 16
_TEMPLATE = "clients-trained"


@click.command("privacy")
@click.option("--experience", help="Folder of experience; default: the shared collection, else what ships.")
@click.option("--arm", "arms", multiple=True, type=click.Choice(list(ARMS)), help="Only this; may be repeated.")
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
    """Validation loss under differential privacy of clients, against epsilon, by what is trained."""
    began = time.monotonic()
    given = bench_input(experience, None)
    with TemporaryDirectory() as temporary:
        home = work or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        request = base_request(given, home, examples)
        found = {}
        for arm in arms or tuple(ARMS):
            for clients in cohorts:
                name = arm if len(cohorts) == 1 else f"{arm}, {clients} clients"
                found[name] = measure_arm(arm, request, home, clients, epsilons, draws)
    result = {
        "arms": found, "clients": list(cohorts), "rounds": 1, "delta": DELTA, "examples": examples, "draws": draws,
        "experience": given.name, "base": request.base_model.name, "seconds": round(time.monotonic() - began, 1),
        "load_average": os.getloadavg()[0],
    }  # fmt: skip
    if svg:
        from capibara_assets.cli.privacy_plot import privacy_svg

        svg.write_text(privacy_svg(result), "utf-8")
    print_result(result, as_json)


def base_request(given: Any, home: Path, examples: int) -> "TrainingRequest":
    """The request that all arms share: the shipped base, one core, the experience's own examples."""
    from capibara_assets.cli.bench_train_inputs import NANO, make_request, write_examples

    data = home / f"data-{examples}"
    if not (data / "examples.parquet").is_file():
        import polars as pl

        data.mkdir(exist_ok=True)
        everything = write_examples(given, home, 8 * examples)
        lengths = pl.read_parquet(home / "tokens.parquet").select(pl.col("input_ids").list.len()).to_series()
        short = pl.read_parquet(everything).filter(lengths <= _LONGEST)
        kept = [
            short.filter(pl.col("split") == split).head(most)
            for split, most in (("train", examples), ("validation", _JUDGED))
        ]
        pl.concat(kept).write_parquet(data / "examples.parquet")
    changes = {
        "hardware": {"threads": 1, "parallel": 1, "precision": "auto"},
        "data": {"max_validation_examples": _JUDGED},
        "training": {"global_batch": 4, "final_learning_rate": 0.1},
    }
    return make_request(NANO, data / "examples.parquet", home / "work", changes)


def at_rank(request: "TrainingRequest", rank: int, rate: float) -> "TrainingRequest":
    """The same with another rank and learning rate."""
    lora = request.recipe.model.lora.model_copy(update={"rank": rank, "alpha": 2 * rank})
    model = request.recipe.model.model_copy(update={"lora": lora})
    training = request.recipe.training.model_copy(update={"learning_rate": rate})
    recipe = request.recipe.model_copy(update={"model": model, "training": training})
    return request.model_copy(update={"recipe": recipe})


def measure_arm(
    arm: str, request: "TrainingRequest", home: Path, clients: int, epsilons: Sequence[float], draws: int
) -> dict[str, Any]:
    """All epsilons of one set of trained numbers; what `home` has already is not measured again."""
    from capibara_assets.training.privacy import dp_noise_multiplier, predicted_snr

    trained, rank, rate = ARMS[arm]
    request = at_rank(request, rank, rate)
    place = home / f"{trained}-{rank}-{clients}-{request.dataset_digest[:8]}"
    choice = {"kind": "federated", "clients": clients, "rounds": 1, "local_epochs": 2.0, "trained": trained}
    lengths = trained_clients(request, choice, place)
    clip = statistics.median(lengths)
    points, base_loss, numbers = {}, None, 0
    for epsilon in epsilons:
        losses, document = [], None
        for draw in range(draws if math.isfinite(epsilon) else 1):
            privacy = {"epsilon": epsilon, "delta": DELTA, "clip": clip, "seed": draw}
            file = place / f"epsilon-{epsilon}-{draw}.json"
            if not file.is_file():
                changed = choice | ({"privacy": privacy} if math.isfinite(epsilon) else {})
                file.write_text(json.dumps(put_together(request, changed, place)), "utf-8")
            manifest = json.loads(file.read_text("utf-8"))
            base_loss = manifest["base_validation_loss"]
            losses.append(manifest["validation_loss"])
            document = manifest["published"].get("privacy")
        if document:
            numbers = document["dimensions"]
        points[str(epsilon)] = point_of(losses, document)
    at_one = dp_noise_multiplier(1.0, 1.0, 1, DELTA)
    return {
        "trained": trained,
        "rank": rank,
        "dimensions": numbers,
        "clip": round(clip, 4),
        "lengths": [round(min(lengths), 4), round(max(lengths), 4)],
        "base_loss": round(base_loss or math.nan, 4),
        "points": points,
        "clients_for_snr_1_at_epsilon_1": math.ceil(clients / predicted_snr(1.0, at_one, clients, numbers).snr)
        if numbers
        else None,
    }


def point_of(losses: Sequence[float], document: dict[str, Any] | None) -> dict[str, Any]:
    """The figures of one epsilon."""
    return {
        "loss": round(statistics.median(losses), 4),
        "losses": [round(loss, 4) for loss in losses],
        "predicted_snr": round(document["predicted_snr"], 4) if document else None,
        "noise_multiplier": round(document["noise_multiplier"], 4) if document else 0.0,
    }


def trained_clients(request: "TrainingRequest", choice: dict[str, Any], place: Path) -> list[float]:
    """Train the clients of the only round, or go on with them; the lengths of their changes.

    They begin with B = 0, so a change is what the client holds: the product, or B.
    """
    from capibara_assets.modeling.adapters import read_adapter
    from capibara_assets.training.events import EventLog
    from capibara_assets.training.federated import start_run, train_clients
    from capibara_assets.training.ranks import ALONE
    from capibara_assets.training.strategies import Federated

    request, voter, strategy = with_strategy(request, choice, Federated)
    folder = place / _TEMPLATE
    run = start_run(request, voter, strategy, folder, go_on, ALONE)
    log = EventLog(folder / "events.jsonl", run="bench", listener=say)
    lengths = []
    for name in train_clients(run, 1, log, None):
        adapter = read_adapter(folder / name / "result")
        parts = [
            adapter.delta(module) if strategy.trained == "factors" else adapter.b(module) for module in adapter.modules
        ]
        lengths.append(math.sqrt(math.fsum(float(part.double().square().sum()) for part in parts)))
    return lengths


def put_together(request: "TrainingRequest", choice: dict[str, Any], place: Path) -> dict[str, Any]:
    """The round's end by federated training itself, on links to the trained clients: its manifest."""
    from capibara_assets.training.federated import train_federated
    from capibara_assets.training.ranks import ALONE
    from capibara_assets.training.strategies import Federated

    request, voter, strategy = with_strategy(request, choice, Federated)
    folder = place / "putting-together"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place / _TEMPLATE, folder, copy_function=os.link)
    (folder / "events.jsonl").unlink()  # a log is appended to
    found = train_federated(request, voter, strategy, folder, say, go_on, ALONE)
    manifest: dict[str, Any] = json.loads((found / "manifest.json").read_text("utf-8"))
    shutil.rmtree(folder)
    return manifest


def with_strategy(
    request: "TrainingRequest", choice: dict[str, Any], kind: type["Federated"]
) -> tuple["TrainingRequest", Any, Any]:
    """The request of one voter with that strategy, the voter, the strategy."""
    strategy = kind.model_validate(choice)
    voter = request.recipe.voters[0].model_copy(update={"strategy": strategy})
    recipe = request.recipe.model_copy(update={"voters": (voter,)})
    return request.model_copy(update={"recipe": recipe}), voter, strategy


def say(event: dict[str, Any]) -> None:
    """Finished clients, warnings and rounds, on stderr."""
    if event["event"] in ("part_finished", "warning", "round"):
        said = event.get("text") or f"{event.get('part', 'round')}: loss {event['validation_loss']:.4f}"
        click.echo(said, err=True)


def go_on() -> None:
    """Nothing asks a bench to stop."""
