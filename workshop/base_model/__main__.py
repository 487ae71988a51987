"""Pre-train the base model that ships: ``python -m workshop.base_model --out DIR --state DIR``."""

from __future__ import annotations

import argparse
from pathlib import Path

from workshop.base_model.accelerated import pretrain
from workshop.base_model.card import write_card
from workshop.base_model.settings import Settings
from workshop.base_model.streams import prepare
from workshop.base_model.training import measure, train


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the model, usable after each save")
    parser.add_argument("--state", type=Path, help="folder for tokens and resume points, outside --out")
    parser.add_argument("--minutes", type=float, default=Settings.minutes)
    parser.add_argument("--threads", type=int, default=Settings.threads)
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--corpus-bytes", type=int, default=Settings.corpus_bytes)
    parser.add_argument("--start", default="", help="folder of an earlier run's model to go on with")
    parser.add_argument(
        "--skills", type=float, default=Settings.skills, help="share of conversations that train skills"
    )
    parser.add_argument("--compile", action="store_true", help="torch.compile the model (needs a C++ compiler)")
    parser.add_argument("--tokenizer", default="", help="folder of a model whose tokenizer is taken")
    parser.add_argument("--device", default=Settings.device, help="cuda: files and skills drawn meanwhile")
    parser.add_argument("--workers", type=int, default=Settings.workers, help="processes that draw skills meanwhile")
    parser.add_argument("--batch", type=int, default=Settings.batch, help="sequences per step")
    parser.add_argument("--micro-batch", type=int, default=Settings.micro_batch, help="sequences per forward pass")
    parser.add_argument("--prepare", action="store_true", help="only write tokens and functions into --state")
    parser.add_argument("--measure", action="store_true", help="only measure the model in --out and write its card")
    parser.add_argument("--card", action="store_true", help="only write the card again, from the summary in --out")
    given = parser.parse_args(arguments)
    if given.card:
        write_card(given.out)
        return
    if given.state is None or given.minutes <= 0:
        parser.error("training needs --state and --minutes above 0")
    if given.device != Settings.device and not given.workers:
        parser.error(f"--device {given.device} needs --workers: processes that draw skills while it trains")
    settings = Settings(
        minutes=given.minutes,
        threads=given.threads,
        seed=given.seed,
        corpus_bytes=given.corpus_bytes,
        start=given.start,
        skills=given.skills,
        compiled=given.compile,
        tokenizer=given.tokenizer,
        device=given.device,
        workers=given.workers,
        batch=given.batch,
        micro_batch=given.micro_batch,
    )
    if given.prepare:
        prepare(settings, given.out, given.state)
    elif given.measure:
        measure(settings, given.out, given.state)
    elif settings.workers:
        pretrain(settings, given.out, given.state)
    else:
        train(settings, given.out, given.state)


if __name__ == "__main__":
    main()
