"""`capibara bench plan-xla`: our memory figures and verdicts beside those of the real TPU compiler."""

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.bench_output import print_result

if TYPE_CHECKING:
    from capibara_assets.planning.xla_cases import KnownCase

QUICK = 4  # cases of `--quick`: the smallest of those judged


@click.command("plan-xla")
@click.option("--compile", "compiling", is_flag=True, help="Ask the compiler again (seconds a case; needs libtpu).")
@click.option("--whole", is_flag=True, help="With --compile: to the end, code and all (minutes a case).")
@click.option("--quick", is_flag=True, help="Only a handful of small cases.")
@click.option("--fit", "fitting", is_flag=True, help="Fit the numbers of copies on the calibration cases again.")
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of verdicts; those that are there are not asked for again.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def plan_xla(compiling: bool, whole: bool, quick: bool, fitting: bool, cache: Path | None, as_json: bool) -> None:
    """Memory of compiled steps against our arithmetic, verdicts near the limit, and what the compiler took for it.

    Without --compile the compiler's answers are those that ship (resources/planning/xla_cases.json).
    """
    print_result(measure(compiling, whole, quick, fitting, cache), as_json)


def measure(
    compiling: bool = False, whole: bool = False, quick: bool = False, fitting: bool = False, cache: Path | None = None
) -> dict[str, Any]:
    """The figures; errors are relative to what the compiler allots, verdicts those of cases near the limit."""
    from capibara_assets.planning.xla_cases import FITTED, fit_copies, known_cases

    known = known_cases()
    cases: Sequence[KnownCase] = known.cases
    if quick:
        judged = sorted(known.of("judged"), key=lambda one: one.case.shape.parameters)
        cases = judged[:QUICK]
    asked = _ask(cases, whole, cache) if compiling else None
    if asked is not None:
        cases = asked["cases"]
    result: dict[str, Any] = {
        "answers": "asked now" if compiling else "shipped",
        "versions": known.versions,
        "cases": len(cases),
        "by_status": dict(Counter(one.status for one in cases)),
        "memory": _memory([one for one in cases if one.role == "judged" and one.fits]),
        "memory_decoders": _memory([one for one in cases if one.role == "judged" and one.fits and _decodes(one)]),
        "memory_calibration": _memory([one for one in cases if one.role == "calibration" and one.fits]),
        "verdicts": _verdicts([one for one in cases if one.role == "near the limit"]),
        "choice": _choice([one for one in cases if one.role == "choice"]),
        "compile": _times(cases),
    }
    if asked is not None:
        result |= {"unlike_shipped": asked["unlike"], "wall_s": asked["wall_s"], "cached": asked["cached"]}
    if fitting:
        result["copies"] = fit_copies(known.of(*FITTED)).model_dump()
    return result


def _memory(cases: "Sequence[KnownCase]") -> dict[str, Any]:
    if not cases:
        return {"cases": 0}
    errors = {one.name: one.ours.total / one.memory["allotted"] - 1 for one in cases}
    worst = max(errors, key=lambda name: abs(errors[name]))
    sizes = sorted(one.case.shape.parameters for one in cases)
    return {
        "cases": len(cases),
        "smallest_parameters": sizes[0],
        "largest_parameters": sizes[-1],
        "median_error": round(statistics.median(map(abs, errors.values())), 4),
        "worst_error": round(errors[worst], 4),
        "worst": worst,
        "within_10_percent": sum(abs(error) <= 0.1 for error in errors.values()),
    }


def _decodes(case: "KnownCase") -> bool:
    return case.case.shape.family == "decoder"


def _verdicts(cases: "Sequence[KnownCase]") -> dict[str, Any]:
    from capibara_assets.planning.tpu_memory import fits

    if not cases:
        return {"cases": 0}
    wrong = [one.name for one in cases if fits(one.ours, one.limit) != one.fits]
    return {
        "cases": len(cases),
        "fit": sum(one.fits for one in cases),
        "do_not_fit": sum(not one.fits for one in cases),
        "right": len(cases) - len(wrong),
        "share_right": round(1 - len(wrong) / len(cases), 4),
        "wrong": wrong,
    }


def _choice(cases: "Sequence[KnownCase]") -> dict[str, Any]:
    """Plans that the search chose first, and how many of them the compiler took at once."""
    taken = [one for one in cases if one.fits]
    return {
        "cases": len(cases),
        "taken_at_first_try": len(taken),
        "compiled_to_the_end": sum(one.status == "compiled" for one in cases),
        "refused": [one.name for one in cases if not one.fits],
    }


def _times(cases: "Sequence[KnownCase]") -> dict[str, Any]:
    """Seconds and host memory, by how far the compiler was let go."""
    found: dict[str, Any] = {}
    for status in ("compiled", "fits", "does not fit"):
        seconds = [one.compile_seconds for one in cases if one.status == status and one.compile_seconds is not None]
        peaks = [one.host_peak_bytes for one in cases if one.status == status and one.host_peak_bytes]
        if seconds:
            found[status] = {
                "cases": len(seconds),
                "median_s": round(statistics.median(seconds), 1),
                "longest_s": round(max(seconds), 1),
                "host_peak_gib": round(max(peaks) / 2**30, 2) if peaks else None,
            }
    return found


def _ask(cases: "Sequence[KnownCase]", whole: bool, folder: Path | None) -> dict[str, Any]:
    """The same cases with the compiler's answers of now, and which of them differ from those that ship."""
    from capibara_assets.planning.xla import check_case
    from capibara_assets.planning.xla_cache import VerdictCache

    cache = None if folder is None else VerdictCache(folder)
    started = time.monotonic()
    answered, unlike, cached = [], [], 0
    for one in cases:
        verdict = check_case(one.case, compile_program=True, whole=whole, cache=cache)
        cached += verdict.cached
        new = one.model_copy(
            update={
                "status": verdict.status,
                "memory": verdict.memory,
                "compile_seconds": verdict.compile_seconds,
                "host_peak_bytes": verdict.host_peak_bytes,
            }
        )
        if new.fits != one.fits or abs(new.memory.get("allotted", 0) - one.memory.get("allotted", 0)) > 2**20:
            unlike.append(one.name)
        answered.append(new)
    return {
        "cases": answered,
        "unlike": unlike,
        "cached": cached,
        "wall_s": round(time.monotonic() - started, 1),
    }
