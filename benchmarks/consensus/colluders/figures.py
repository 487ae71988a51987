"""What draws of the bench `colluders` add up to: by goal and number of voters, the best that colluders reached."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.consensus.colluders.game import Draw, Played

UNITS = {
    "loss": "of the gain lost",
    "trigger": "of triggered questions obeyed",
    "slice": "of the slice's gain lost",
}


def summary(draws: "Sequence[Draw]") -> dict[str, Any]:
    """Goal -> n -> figures, and the largest that was reached for each goal.

    `reached_*` are over draws, each with the strength that paid most; a vote without quorum publishes nothing, so it
    counts as `blocked` and not as reached. `honest_refused` counts voters over all games.
    """
    sizes: dict[str, dict[int, list[Draw]]] = {}
    for draw in draws:
        sizes.setdefault(draw.goal, {}).setdefault(draw.n, []).append(draw)
    goals = {goal: {str(n): _of(some) for n, some in sorted(by_n.items())} for goal, by_n in sizes.items()}
    most = {f"{goal}_reached": max(one["reached_max"] for one in by_n.values()) for goal, by_n in goals.items()}
    return {**most, "draws": len(draws), "goals": goals}


def _of(draws: "Sequence[Draw]") -> dict[str, Any]:
    games = [game for draw in draws for game in draw.played]
    reached = [max((game.reached for game in draw.played if game.reached is not None), default=0.0) for draw in draws]
    through = [game for game in games if game.accepted]
    honest = sum(draw.n - draw.colluders for draw in draws for _ in draw.played)
    return {
        "draws": len(draws),
        "colluders": draws[0].colluders,
        "draws_accepted": _draws(draws, lambda game: game.accepted > 0),
        "strongest_accepted": max((game.strength for game in through), default=None),
        "own_max": _shown(max((game.own for game in through if game.own is not None), default=0.0)),
        "reached_median": _shown(median(reached)),
        "reached_max": _shown(max(reached)),
        "blocked": sum(not game.quorate for game in games),
        "games": len(games),
        "honest_refused": sum(game.refused_honest for game in games),
        "honest": honest,
        "by_slices": {
            "draws_accepted": _draws(draws, lambda game: game.accepted_by_slices > 0),
            "strongest_accepted": max((game.strength for game in games if game.accepted_by_slices), default=None),
            "games_accepted": sum(game.accepted_by_slices > 0 for game in games),
            "honest_refused": sum(game.refused_by_slices for game in games),
            "blocked": sum(not game.quorate_by_slices for game in games),
        },
        "games_accepted": len(through),
    }


def _draws(draws: "Sequence[Draw]", which: "Callable[[Played], bool]") -> int:
    return sum(any(which(game) for game in draw.played) for draw in draws)


def _shown(share: float) -> float:
    return round(share, 4)


def markdown(found: Mapping[str, Any]) -> str:
    """Two tables: what is reached with the shipped vote, and what a quality for each slice would change."""
    reached = [
        "| against | n | f | draws with one accepted | strongest accepted | its own adapter, most | consensus, median |"
        " most | no quorum |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    slices = [
        "| against | n | games with a colluder accepted | with a quality for each slice | honest voters refused |"
        " with a quality for each slice | no quorum, with it |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for goal, sizes in found["goals"].items():
        for n, one in sizes.items():
            by_slices, games, honest = one["by_slices"], one["games"], one["honest"]
            strongest = "–" if one["strongest_accepted"] is None else f"{one['strongest_accepted']:g}"
            reached.append(
                f"| {goal} | {n} | {one['colluders']} | {one['draws_accepted']} of {one['draws']} | {strongest} | "
                f"{_percent(one['own_max'])} | {_percent(one['reached_median'])} | {_percent(one['reached_max'])} | "
                f"{one['blocked']} of {games} |"
            )
            slices.append(
                f"| {goal} | {n} | {one['games_accepted']} of {games} | {by_slices['games_accepted']} of {games} | "
                f"{one['honest_refused']} of {honest} | {by_slices['honest_refused']} of {honest} | "
                f"{by_slices['blocked']} of {games} |"
            )
    strengths = ", ".join(f"{one:g}" for one in found["strengths"])
    pool = ", ".join(f"{count} {kind}" for kind, count in sorted(found["pool"].items()))
    how = f"losses in {found['precision']}" + (", compiled layers" if found["compiled"] else "")
    units = "; ".join(f"{goal}: share {unit}" for goal, unit in UNITS.items())
    return "\n".join(
        [
            f"{found['draws']} draws, strengths {strengths}; adapters: {pool}; {how}. {units[0].upper()}{units[1:]}.",
            "", *reached, "", *slices,
        ]
    )  # fmt: skip


def short(found: Mapping[str, Any]) -> str:
    """One table: the most that the consensus gave way, by what colluders wanted and the number of voters."""
    sizes = sorted({int(n) for by_n in found["goals"].values() for n in by_n})
    rows = [
        f"| at most, in {found['draws']} draws | {' | '.join(f'n = {n}, f = {(n - 1) // 3}' for n in sizes)} |",
        f"| --- |{' ---: |' * len(sizes)}",
    ]
    for goal, by_n in found["goals"].items():
        cells = [_percent(by_n[str(n)]["reached_max"]) if str(n) in by_n else "not played" for n in sizes]
        rows.append(f"| {goal}: share {UNITS[goal]} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"
