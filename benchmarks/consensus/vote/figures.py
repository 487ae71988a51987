"""What games of the bench `vote` add up to: increases of the loss, points of a trigger, shares with their intervals."""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capibara_assets.errors import InputError

if TYPE_CHECKING:
    from benchmarks.consensus.vote.game import Result

WITHIN = 0.02  # relative increase of the test loss
SHARE = 0.95  # of the seeds
POINTS = 2.0  # of the trigger's success


def summary(results: "Sequence[Result]") -> dict[str, Any]:
    """The figures of games.

    `worst_loss_increase` is the largest, over attacks and sizes, of the increase that 95 % of the seeds stay within
    (the ceil(0.95 * seeds)-th smallest): it is at most 0.02 exactly when each attack passes at each n. The plain
    maximum over all games stands beside it. A back door is judged by its trigger.
    """
    from benchmarks.consensus.vote.attacks import BACKDOOR

    by_attack: dict[str, dict[str, Any]] = {}
    for result in results:
        by_attack.setdefault(result.attack, {}).setdefault(str(result.n), []).append(result)
    figures = {
        name: {n: (of_trigger if name == BACKDOOR else of_losses)(games) for n, games in sizes.items()}
        for name, sizes in by_attack.items()
    }
    losses = [one for name, sizes in figures.items() if name != BACKDOOR for one in sizes.values()]
    found: dict[str, Any] = {}
    if losses:
        found["worst_loss_increase"] = max(one["increase_p95"] for one in losses)
        found["max_loss_increase"] = max(one["increase_max"] for one in losses)
        found["least_share_within"] = min(one["share"] for one in losses)
    if BACKDOOR in figures:
        found["backdoor_points"] = max(one["points_max"] for one in figures[BACKDOOR].values())
    return {**found, "attacks": figures}


def of_losses(games: "Sequence[Result]") -> dict[str, Any]:
    """One attack at one n: how many seeds stay within 2 %, with a 95 % Wilson interval, and by how much others do."""
    increases = sorted(game.increase for game in games)
    within = sum(increase <= WITHIN for increase in increases)
    by_strength: dict[float, list[float]] = {}
    for game in games:
        by_strength.setdefault(game.strength, []).append(game.increase)
    return {
        "seeds": len(games),
        "within": within,
        "share": round(within / len(games), 4),
        "wilson": wilson(within, len(games)),
        "increase_median": _shown(increases[len(games) // 2]),
        "increase_p95": _shown(increases[math.ceil(SHARE * len(games)) - 1]),
        "increase_max": _shown(increases[-1]),
        "max_by_strength": {f"{strength:g}": _shown(max(found)) for strength, found in sorted(by_strength.items())},
        **_verdicts(games),
    }


def of_trigger(games: "Sequence[Result]") -> dict[str, Any]:
    """A back door at one n: percentage points by which the consensus obeys the trigger more often than a clean one."""
    points = sorted(100 * (_number(game.success) - _number(game.honest_success)) for game in games)
    within = sum(one <= POINTS for one in points)
    return {
        "seeds": len(games),
        "within": within,
        "share": round(within / len(games), 4),
        "wilson": wilson(within, len(games)),
        "points_median": round(points[len(games) // 2], 2),
        "points_p95": round(points[math.ceil(SHARE * len(games)) - 1], 2),
        "points_max": round(points[-1], 2),
        "max_by_strength": {
            f"{strength:g}": round(
                max(100 * (_number(g.success) - _number(g.honest_success)) for g in games if g.strength == strength), 2
            )
            for strength in sorted({game.strength for game in games})
        },
        "increase_max": _shown(max(game.increase for game in games)),
        **_verdicts(games),
    }


def wilson(successes: int, trials: int) -> list[float]:
    """95 % score interval of a share (Wilson 1927)."""
    from capibara_assets.playbooks.graduation import wilson_lower_bound

    low, high = wilson_lower_bound(successes, trials), 1 - wilson_lower_bound(trials - successes, trials)
    return [round(low, 4), round(high, 4)]


def _verdicts(games: "Sequence[Result]") -> dict[str, Any]:
    return {
        "no_consensus": sum(game.loss is None for game in games),
        "games_with_bad_accepted": sum(game.accepted_bad > 0 for game in games),
        "games_with_honest_rejected": sum(game.rejected_honest > 0 for game in games),
    }


def _shown(increase: float) -> float:
    """Rounded upwards, so that nothing passes by rounding; no consensus counts as infinite, JSON's largest number."""
    return math.ceil(increase * 1e5) / 1e5 if math.isfinite(increase) else sys.float_info.max


def _number(share: float | None) -> float:
    return 1.0 if share is None else share


def markdown(found: Mapping[str, Any]) -> str:
    """A table: one row for each attack and n."""
    rows = [
        "| attack | n | within | share, 95 % interval | median | 95th percentile | largest | a bad voter accepted |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for attack, sizes in found["attacks"].items():
        for n, one in sizes.items():
            of_points = "points_max" in one
            figures = [one[f"{'points' if of_points else 'increase'}_{which}"] for which in ("median", "p95", "max")]
            shown = [_cell(figure, of_points) for figure in figures]
            low, high = one["wilson"]
            cells = [
                f"`{attack}`", n, f"{one['within']} of {one['seeds']}", f"{one['share']:.2f}, {low:.3f} to {high:.3f}",
                *shown, f"{one['games_with_bad_accepted']} of {one['seeds']}",
            ]  # fmt: skip
            rows.append(f"| {' | '.join(cells)} |")
    headline = [
        f"`{name}` {found[name]:.4g}"
        for name in ("worst_loss_increase", "max_loss_increase", "backdoor_points")
        if name in found
    ]
    how = f"losses in {found['precision']}" + (", compiled layers" if found["compiled"] else "")
    return "\n".join([f"{found['games']} games, {how}: {', '.join(headline)}.", "", *rows])


def _cell(figure: float, of_points: bool) -> str:
    if of_points:
        return f"{figure:+.1f} points"
    return "no quorum" if figure > 1e300 else f"{100 * figure:+.2f} %"


def write_between(document: Path, command: str, text: str) -> None:
    """Replace what stands between the markers that name the command.

    Raises:
        InputError: the document has no such markers.
    """
    begin, end = f"<!-- made by `{command}` -->", "<!-- end -->"
    whole = document.read_text("utf-8")
    before, found, rest = whole.partition(begin)
    _, ending, after = rest.partition(end)
    if not found or not ending:
        raise InputError(f"{document} has no lines {begin!r} and {end!r} to write the table between")
    document.write_text(f"{before}{begin}\n{text}\n{end}{after}", "utf-8")
