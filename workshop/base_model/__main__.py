"""Pre-train the base model that ships: ``python -m workshop.base_model --out DIR --state DIR``."""

from __future__ import annotations

import argparse
from pathlib import Path

from workshop.base_model.card import write_card
from workshop.base_model.settings import Settings
from workshop.base_model.training import train


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
    parser.add_argument("--card", action="store_true", help="only write the card again, from the summary in --out")
    given = parser.parse_args(arguments)
    if given.card:
        write_card(given.out)
        return
    if given.state is None or given.minutes <= 0:
        parser.error("training needs --state and --minutes above 0")
    settings = Settings(
        minutes=given.minutes,
        threads=given.threads,
        seed=given.seed,
        corpus_bytes=given.corpus_bytes,
        start=given.start,
        skills=given.skills,
        compiled=given.compile,
    )
    train(settings, given.out, given.state)


if __name__ == "__main__":
    main()
