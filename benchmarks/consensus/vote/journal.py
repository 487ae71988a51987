"""Games of the bench `vote` that were played, one JSON line each, so that a run goes on where another one stopped."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.consensus.vote.game import Result
from capibara_assets.errors import InputError

Game = tuple[str, int, int]
"""Attack, n, seed."""


@dataclass(frozen=True)
class Journal:
    """A file of games; runs may add to one at once.

    Attributes:
        file: None keeps nothing.
        settings: names all that decides a game but attack, n and seed; lines of other settings are not read.
    """

    file: Path | None
    settings: str

    def known(self) -> dict[Game, Result]:
        """Games that need not be played again.

        Raises:
            InputError: a line that is none of a game.
        """
        if self.file is None or not self.file.is_file():
            return {}
        names = {field.name for field in fields(Result)}
        found: dict[Game, Result] = {}
        for number, line in enumerate(self.file.read_text("utf-8").splitlines(), start=1):
            try:
                entry = json.loads(line)
                if entry.pop("settings") == self.settings:
                    game = Result(**{name: entry[name] for name in names})
                    found[game.attack, game.n, game.seed] = game
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise InputError(
                    f"{self.file}, line {number}: expected a game of `vote --games`: {error!r}. "
                    "Take the line out, or name another file"
                ) from error
        return found

    def add(self, games: Iterable[Result]) -> None:
        """Append games, in one write."""
        if self.file is None:
            return
        lines = [json.dumps({"settings": self.settings, **asdict(game)}, sort_keys=True) + "\n" for game in games]
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as file:
            file.write("".join(lines))
