"""Charts of a consensus certificate: verdicts, ballots, distances between voters, weights, losses.

Works on the certificate as JSON of any schema version; fields missing from older versions are omitted or noted.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from capibara_assets.escaping.languages import Markdown, markdown_table
from capibara_assets.metadata.charts import ChartRow, row_chart
from capibara_assets.metadata.drawing import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    RED,
    shortened,
    svg,
    text,
    width_of,
    word,
    words_group,
)
from capibara_assets.metadata.tables import badge

WIDTH = 560  # of the dialog in which the UI shows a picture
NUMBERED_VOTERS = 10  # a larger matrix has only colours, since its numbers would not fit
NAME_CHARACTERS = 14
_ACCEPTS, _REFUSES, _MISSING, _SELF = "#bfe3c3", "#f3b4ad", "#d1d5db", "#f9fafb"

LONG_PARTS = ("ballots", "tallies", "evidence", "tried", "refused", "confirmations")
"""Parts of a certificate whose size grows with the square of the voters or with the candidates."""

Document = Mapping[str, Any]


def verdict_table(certificate: Document) -> str:
    """Markdown table of the voters: verdict with a green or red dot, weight, and reason."""
    lines = []
    for voter in certificate["voters"]:
        verdict = Markdown("![][a] accepted" if voter["accepted"] else "![][r] **rejected**")
        weight = "–" if voter.get("weight") is None else f"{voter['weight']:.3f}"
        lines.append((voter["name"], verdict, weight, voter["reason"]))
    table = markdown_table(("voter", "verdict", "weight", "why"), lines, right=[2])
    return "\n".join([table, "", badge("a", GREEN), badge("r", RED)])


def outcome_words(certificate: Document) -> str:
    """One line: number of accepted voters, the chosen candidate, and its loss beside the base model's."""
    accepted = sum(voter["accepted"] for voter in certificate["voters"])
    result = certificate["result"]
    return (
        f"{accepted} of {certificate['n']} voters accepted (f = {certificate['f']}); {_chosen(certificate)}; "
        f"loss {result['loss']:.4f}, base {result['base_loss']:.4f}"
    )


def signature_words(certificate: Document) -> str:
    """One line: signed ballots and keys, who contradicted itself, is absent or did not confirm, and the trust model."""
    ballots = certificate["ballots"]
    signed = sum(bool(ballot.get("signature")) for ballot in ballots)
    keys = {voter["public_key"] for voter in certificate["voters"] if voter.get("public_key")}
    parts = [f"{signed} of {len(ballots)} ballots signed by {len(keys)} keys" if signed else "no ballot is signed"]
    if refused := len(certificate.get("refused") or ()):
        parts.append(f"{refused} refused")
    for what, field in (("contradicted itself", "equivocated"), ("absent", "absent")):
        if names := list(certificate.get(field) or ()):
            parts.append(f"{what}: {', '.join(names)}")
    if confirmed := len(certificate.get("confirmations") or ()):
        parts.append(f"{confirmed} accepted voters signed the losses of the candidates and the choice")
    if names := list(certificate.get("unconfirmed") or ()):
        parts.append(f"did not confirm the choice: {', '.join(names)}")
    return "; ".join([*parts, f"trust model {certificate['trust_model']}"])


def mean_qualities(certificate: Document) -> dict[tuple[str, str], float | None]:
    """(voter, candidate) -> mean quality over the rounds."""
    by_pair: dict[tuple[str, str], list[float]] = {}
    for ballot in certificate["ballots"]:
        by_pair.setdefault((ballot["voter"], ballot["candidate"]), []).append(ballot["quality"])
    return {pair: sum(qualities) / len(qualities) for pair, qualities in by_pair.items()}


def ballot_matrix(certificate: Document) -> str:
    """Matrix of the ballots: rows are voters, columns candidates, coloured by whether the ballot accepts.

    A cell shows the mean quality over its rounds and, if there are several, a mark for each; below each column are the
    accepting ballots and the required number.
    """
    names = [voter["name"] for voter in certificate["voters"]]
    rejected = {voter["name"] for voter in certificate["voters"] if not voter["accepted"]}
    tallies = {tally["candidate"]: tally for tally in certificate["tallies"]}
    rounds: dict[tuple[str, str], dict[int, float]] = {}
    for ballot in certificate["ballots"]:
        rounds.setdefault((ballot["voter"], ballot["candidate"]), {})[ballot["round"]] = ballot["quality"]
    numbered = len(names) <= NUMBERED_VOTERS
    size = 11 if numbered else 9
    labels = [shortened(name, NAME_CHARACTERS) for name in names]
    # Whole numbers are shorter: the picture of 32 voters stays small
    left = math.ceil(14 + max((width_of(label, size) for label in labels), default=0.0))
    width = min(64, (WIDTH - left - 8) // max(len(names), 1))
    height = 30 if numbered else min(width, 18)
    upright = any(width_of(label, size) > width - 4 for label in labels)
    top = 34 + (math.ceil(max(width_of(label, size) for label in labels)) if upright else 12)
    bottom = top + height * len(names)
    threshold = certificate["thresholds"]["quality"]
    parts = [text(8, 16, f"ballots: quality ≥ {threshold:g} accepts; rows judge columns")]
    columns: dict[str, list[str]] = {INK: [], RED: []}
    heads: dict[str, list[str]] = {INK: [], RED: []}
    for i, label in enumerate(labels):
        colour = RED if names[i] in rejected else INK
        middle = left + width * (i + 0.5)
        # Rotated as a group: what was to the right is then at the top
        columns[colour].append(word(6 - top, middle + 3, label) if upright else word(middle, top - 6, label))
        heads[colour].append(word(left - 6, top + height * (i + 0.5) + 4, label))
    for colour in (INK, RED):
        head = words_group(columns[colour], size=size, colour=colour, anchor="start" if upright else "middle")
        parts.append(f'<g transform="rotate(-90)">{head}</g>' if upright else head)
        parts.append(words_group(heads[colour], size=size, colour=colour, anchor="end"))
    numbers: list[str] = []
    marks: dict[bool, list[str]] = {True: [], False: []}
    cells: dict[str, list[str]] = {}
    for i, voter in enumerate(names):
        fills = [_cell_colour(voter, candidate, tallies.get(candidate)) for candidate in names]
        for fill, start, end in _runs(fills):
            run = f"M{left + width * start} {top + height * (i + 0.5):g}h{width * (end - start)}"
            cells.setdefault(fill, []).append(run)
        for j, candidate in enumerate(names) if numbered else ():
            qualities = [quality for _, quality in sorted(rounds.get((voter, candidate), {}).items())]
            x, y = left + width * j, top + height * i
            if qualities:
                down = height / 2 + (1 if len(qualities) > 1 else 4)
                numbers.append(word(x + width / 2, y + down, f"{sum(qualities) / len(qualities):.2f}"))
            if len(qualities) > 1:
                step = (width - 8) / len(qualities)
                for k, quality in enumerate(qualities):
                    mark = f"M{x + 5 + step * k:.1f} {y + height - 7:.1f}h{max(step - 2, 1):.1f}"
                    marks[quality >= threshold].append(mark)
    for fill, runs in cells.items():
        parts.append(f'<path d="{"".join(runs)}" stroke="{fill}" stroke-width="{height}"/>')
    parts.append(words_group(numbers, size=size, colour=INK, anchor="middle"))
    for accepts, colour in ((True, GREEN), (False, RED)):
        parts.append(f'<path d="{"".join(marks[accepts])}" stroke="{colour}" stroke-width="4"/>')
    lines = [f"M{left} {top + height * i}H{left + width * len(names)}" for i in range(1, len(names))]
    lines += [f"M{left + width * j} {top}V{bottom}" for j in range(1, len(names))]
    parts.append(f'<path d="{"".join(lines)}" stroke="#ffffff" stroke-width="2"/>')
    parts += _counts([tallies.get(name) for name in names], left, width, bottom, size, numbered)
    swatches = ((_ACCEPTS, "accepts", INK), (_REFUSES, "refuses", INK), (_MISSING, "no ballot", INK))
    for k, (fill, words, colour) in enumerate(swatches):
        parts.append(f'<rect x="{8 + 90 * k}" y="{bottom + 40}" width="11" height="11" fill="{fill}"/>')
        parts.append(text(24 + 90 * k, bottom + 50, words, colour=colour))
    parts.append(text(8 + 90 * len(swatches), bottom + 50, "rejected voters in red", colour=RED))
    return svg(parts, WIDTH, bottom + 60)


def distance_map(certificate: Document, measured: Document | None = None) -> str:
    """The voters as points in the plane, at the distances of their adapters' deltas (close voters agree).

    Rejected voters are red; those without distances are listed below the picture.

    Args:
        measured: "order" and "distances" of more voters than the certificate's evidence has, the accepted ones.
    """
    from capibara_assets.consensus.aggregation.geometry import classical_scaling

    evidence = certificate["evidence"] if measured is None else measured
    order, distances = evidence.get("order") or [], evidence.get("distances") or []
    if not order or len(order) != len(distances):
        return svg([text(8, 20, "this certificate has no distances between voters")], WIDTH, 34)
    points, stress = classical_scaling(distances)
    voters = {voter["name"]: voter for voter in certificate["voters"]}
    top, height, margin = 28.0, 300.0, 56.0
    reach_x, reach_y = (max(float(abs(points[:, axis]).max()), 1e-12) for axis in (0, 1))
    unit = min((WIDTH / 2 - margin) / reach_x, (height / 2 - 24) / reach_y)
    if not math.isfinite(unit) or unit > 1e11:  # every voter at one place
        unit = 0.0
    places = [(WIDTH / 2 + unit * float(x), top + height / 2 - unit * float(y)) for x, y in points]
    parts = [
        text(8, 16, f"distances between voters' deltas (classical scaling, stress {stress:.2f}; 0 is exact)"),
        f'<rect x="8" y="{top:.1f}" width="{WIDTH - 16}" height="{height:.1f}" fill="none" stroke="{GREY}"/>',
    ]
    weights = [voters[name].get("weight") for name in order]
    if (centre := _weighted(places, weights)) is not None:
        x, y = centre
        parts.append(f'<path d="M{x - 7:.1f} {y:.1f}h14M{x:.1f} {y - 7:.1f}v14" stroke="{BLUE}" stroke-width="2"/>')
    for name, (x, y) in zip(order, places, strict=True):
        if voters[name]["accepted"]:
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{GREEN}" fill-opacity="0.85"/>')
        else:
            parts.append(
                f'<path d="M{x:.1f} {y - 7:.1f}l7 7l-7 7l-7 -7z" fill="{RED}" fill-opacity="0.85" class="rejected"/>'
            )
    colours = [INK if voters[name]["accepted"] else RED for name in order]
    parts += _labels([shortened(name, NAME_CHARACTERS) for name in order], places, colours, top, height)
    y = top + height + 18
    parts += [f'<circle cx="14" cy="{y - 4:.1f}" r="5" fill="{GREEN}"/>', text(24, y, "accepted")]
    parts.append(f'<path d="M104 {y - 11:.1f}l7 7l-7 7l-7 -7z" fill="{RED}"/>')
    parts.append(text(116, y, "rejected", colour=RED))
    if centre is not None:
        parts.append(f'<path d="M183 {y - 4:.1f}h14M190 {y - 11:.1f}v14" stroke="{BLUE}" stroke-width="2"/>')
        parts.append(text(203, y, "weighted mean of the voters", colour=BLUE))
    if unit:
        parts += _ruler(unit, 372.0, y)
    absent = [name for name in voters if name not in order]
    for line in _wrapped("not placed, rejected before distances were taken: ", absent) if absent else []:
        y += 16
        parts.append(text(8, y, line, colour=RED))
    return svg(parts, WIDTH, y + 12)


def weights_chart(certificate: Document) -> str:
    """A bar per voter for its weight in the consensus; rejected voters in red."""
    rows = []
    for voter in certificate["voters"]:
        weight = voter.get("weight")
        if not voter["accepted"]:
            rows.append(ChartRow(voter["name"], None, RED, f"rejected ({voter['stage']})"))
        else:
            rows.append(ChartRow(voter["name"], weight, GREEN, "the rule has no weights" if weight is None else ""))
    return row_chart(rows, f"weights of the voters in the consensus ({_chosen(certificate)})", bars=True)


def losses_chart(certificate: Document, losses: Mapping[str, float]) -> str:
    """A dot per loss: base model, voters, other candidates, and the consensus last."""
    rows = [ChartRow("base", losses["base"], INK, "base model")] if "base" in losses else []
    accepted = {voter["name"]: voter["accepted"] for voter in certificate["voters"]}
    for name in (name for name in accepted if name in losses):
        rows.append(ChartRow(name, losses[name], *((GREEN, "") if accepted[name] else (RED, "rejected"))))
    tried = {entry["name"]: entry for entry in certificate.get("tried") or ()}
    others = [name for name in (*tried, *losses) if name not in accepted and name not in ("base", "consensus")]
    for name in dict.fromkeys(others):
        passed = tried.get(name, {}).get("passed", True)
        note = "chosen" if name == certificate.get("chosen") else "tried" if passed else "refused by the gate"
        rows.append(ChartRow(name, losses.get(name, tried.get(name, {}).get("loss")), FAINT, note))
    if "consensus" in losses:
        rows.append(ChartRow("consensus", losses["consensus"], BLUE))
    # The axis spans the losses that the choice was between: base model and rejected voters would compress them
    relied_on = [row.value for row in rows if row.colour not in (INK, RED) and row.value is not None]
    title = "validation loss, nats per token (less is better)"
    return row_chart(rows, title, bars=False, most=max(filter(math.isfinite, relied_on), default=None))


def _chosen(certificate: Document) -> str:
    """The candidate chosen as the consensus; in certificates without a choice, the rule's result."""
    chosen = certificate.get("chosen") or "robust"
    return f"robust: {certificate['rule']}" if chosen == "robust" else str(chosen)


def _cell_colour(voter: str, candidate: str, tally: Document | None) -> str:
    if voter == candidate or tally is None:
        return _SELF
    if voter in tally["accepting"]:
        return _ACCEPTS
    return _REFUSES if voter in tally["refusing"] else _MISSING if voter in tally["missing"] else _SELF


def _runs(fills: Sequence[str]) -> list[tuple[str, int, int]]:
    """A row of cells as (colour, start, end), neighbours of one colour merged: 32 x 32 cells stay a few kilobytes."""
    runs: list[tuple[str, int, int]] = []
    for j, fill in enumerate(fills):
        if runs and runs[-1][0] == fill:
            runs[-1] = (fill, runs[-1][1], j + 1)
        else:
            runs.append((fill, j, j + 1))
    return runs


def _counts(
    tallies: Sequence[Document | None], left: float, width: float, bottom: float, size: int, numbered: bool
) -> list[str]:
    """Two lines below the matrix: accepting ballots of each candidate, and the required number."""
    counted: dict[str, list[str]] = {GREEN: [], RED: []}
    needed = []
    for j, tally in enumerate(tallies):
        x = left + width * (j + 0.5)
        if tally is None:
            counted[RED].append(word(x, bottom + 14, "–"))
            continue
        electors = len(tally["accepting"]) + len(tally["refusing"]) + len(tally["missing"])
        words = f"{len(tally['accepting'])} of {electors}" if numbered else f"{len(tally['accepting'])}"
        counted[GREEN if tally["accepted"] else RED].append(word(x, bottom + 14, words))
        needed.append(word(x, bottom + 27, f"{tally['required']}"))
    titles = [word(left - 6, bottom + 14, "accept"), word(left - 6, bottom + 27, "needed")]
    return [
        *(words_group(accepted, size=size, colour=colour, anchor="middle") for colour, accepted in counted.items()),
        words_group(needed, size=size, colour=FAINT, anchor="middle"),
        words_group(titles, size=size, colour=FAINT, anchor="end"),
    ]


def _ruler(unit: float, x: float, y: float) -> list[str]:
    """A scale bar of a round length in the distances' unit, at most a seventh of the picture."""
    most = WIDTH / 7 / unit
    power = 10.0 ** math.floor(math.log10(most))
    length = max(step * power for step in (1, 2, 5) if step * power <= most)
    return [
        f'<path d="M{x:.1f} {y - 8:.1f}v4h{unit * length:.1f}v-4" fill="none" stroke="{FAINT}"/>',
        text(x + 6 + unit * length, y, f"{length:g} (Frobenius norm)", colour=FAINT, size=9),
    ]


def _weighted(places: Sequence[tuple[float, float]], weights: Sequence[float | None]) -> tuple[float, float] | None:
    """Position of the weighted mean (the mean of the positions), or None if the weights do not sum to 1."""
    known = [0.0 if weight is None else weight for weight in weights]
    if not math.isclose(sum(known), 1.0, abs_tol=1e-6):
        return None
    x, y = (sum(w * place[axis] for w, place in zip(known, places, strict=True)) for axis in (0, 1))
    return x, y


def _labels(
    names: Sequence[str], places: Sequence[tuple[float, float]], colours: Sequence[str], top: float, height: float
) -> list[str]:
    """Names beside their points, each on the side where it overlaps others least."""
    size = 11 if len(names) <= NUMBERED_VOTERS else 9
    sides = [(10, 4, "start"), (-10, 4, "end"), (0, -10, "middle"), (0, 18, "middle")]
    sides += [(dx, dy, anchor) for dy in (-12, 18, -24, 30) for dx, anchor in ((9, "start"), (-9, "end"))]
    occupied = [(x - 6, y - 6, x + 6, y + 6) for x, y in places]
    parts = []
    for index, (name, (x, y)) in enumerate(zip(names, places, strict=True)):
        wide = width_of(name, size)
        boxes = []
        for dx, dy, anchor in sides:
            start = x + dx - {"start": 0.0, "middle": wide / 2, "end": wide}[anchor]
            boxes.append((start, y + dy - size, start + wide, y + dy + 2))
        others = [box for k, box in enumerate(occupied) if k != index]
        costs = [
            sum(_overlap(box, other) for other in others)
            + (1e6 if box[0] < 10 or box[2] > WIDTH - 10 or box[1] < top or box[3] > top + height else 0.0)
            for box in boxes
        ]
        best = costs.index(min(costs))
        dx, dy, anchor = sides[best]
        occupied.append(boxes[best])
        parts.append(text(x + dx, y + dy, name, anchor=anchor, colour=colours[index], size=size))
    return parts


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _wrapped(head: str, names: Sequence[str]) -> list[str]:
    lines = [head]
    for index, name in enumerate(names):
        word = shortened(name, NAME_CHARACTERS) + (", " if index + 1 < len(names) else "")
        if width_of(lines[-1] + word) > WIDTH - 16 and lines[-1] != head:
            lines.append("    ")
        lines[-1] += word
    return lines
