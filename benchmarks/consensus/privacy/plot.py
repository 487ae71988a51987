"""Loss against epsilon as a small SVG, from the result of the bench `privacy`."""

import html
import math
from typing import Any

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 210, 18, 40
COLOURS = ("#3568c0", "#d1602a", "#3a8f4d", "#9a4cb5", "#b58a00", "#2f9aa0")


def privacy_svg(result: dict[str, Any]) -> str:
    """A line for each arm over the epsilons (evenly spaced, the last without noise), loss on a logarithmic axis.

    Dots are single draws of the noise; the dashed line is the base without any adapter.
    """
    arms = result["arms"]
    epsilons = sorted({name for arm in arms.values() for name in arm["points"]}, key=float)
    base = next(iter(arms.values()))["base_loss"]
    losses = [loss for arm in arms.values() for point in arm["points"].values() for loss in point["losses"]]
    low, high = math.log(min([base, *losses])) - 0.03, math.log(max([base, *losses])) + 0.03

    def x(index: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * index / max(1, len(epsilons) - 1)

    def y(loss: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (math.log(loss) - low) / (high - low)

    parts = [
        f'<path d="M{LEFT} {TOP} V{HEIGHT - BOTTOM} H{WIDTH - RIGHT + 10}" fill="none" stroke="#9ca3af"/>',
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "epsilon (right: neither clipped nor noised)", "middle"),
        f'<text transform="translate(12 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        "validation loss, nats per token (log)</text>",
    ]
    parts += [_text(x(at), HEIGHT - BOTTOM + 16, _label(name), "middle") for at, name in enumerate(epsilons)]
    for step in range(5):
        value = math.exp(low + (high - low) * step / 4)
        parts.append(_text(LEFT - 6, y(value) + 4, f"{value:.3g}", "end"))
    parts.append(
        f'<path d="M{LEFT} {y(base):.1f} H{WIDTH - RIGHT + 10}" stroke="#6b7280" stroke-dasharray="4 3" fill="none"/>'
    )
    under_the_arms = TOP + 12 + 16 * len(arms)
    parts.append(_text(WIDTH - RIGHT + 14, under_the_arms, f"base {base:.3g} (dashed)", "start", "#6b7280"))
    for index, (name, arm) in enumerate(arms.items()):
        colour = COLOURS[index % len(COLOURS)]
        own = [(at, arm["points"][key]) for at, key in enumerate(epsilons) if key in arm["points"]]
        line = " ".join(f"{x(at):.1f},{y(point['loss']):.1f}" for at, point in own)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.8"/>')
        for at, point in own:
            for loss in point["losses"]:
                parts.append(f'<circle cx="{x(at):.1f}" cy="{y(loss):.1f}" r="2.4" fill="{colour}"/>')
        label = f"{name} ({arm['dimensions']:,})"
        parts.append(_text(WIDTH - RIGHT + 14, TOP + 12 + 16 * index, label, "start", colour))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="11" fill="#374151"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _label(epsilon: str) -> str:
    return "∞" if math.isinf(float(epsilon)) else f"{float(epsilon):g}"


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#374151") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{html.escape(text)}</text>'
