"""Whose playbook a file is: by the manifest of its folder, by its own word, else by the bullets that it shares."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from capibara_assets.playbooks.similarity import components, normalised

SHARED = 0.5
"""Two files of at least half the smaller one's bullets in common are snapshots of one agent's playbook."""


def manifest_agent(path: str, manifests: Mapping[str, str]) -> str | None:
    """Agent of the manifest in the nearest folder upwards. `manifests`: folder -> agent id ("." is the root)."""
    for folder in PurePosixPath(path).parents:
        if str(folder) in manifests:
            return manifests[str(folder)]
    return None


def agents_by_content(contents: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Path -> agent id for files that name no agent: those that share bullets have the same one.

    The id is the first path of the group. `contents`: path -> the bullets' texts. Does not depend on order.
    """
    paths = sorted(contents)
    texts = [frozenset(normalised(text) for text in contents[path]) for path in paths]
    holders: dict[str, list[int]] = {}
    for place, each in enumerate(texts):
        for text in each:
            holders.setdefault(text, []).append(place)
    shared = Counter(
        (left, right)
        for places in holders.values()
        for position, left in enumerate(places)
        for right in places[position + 1 :]
    )
    pairs = [(i, j) for (i, j), count in shared.items() if count >= SHARED * min(len(texts[i]), len(texts[j]))]
    return {paths[place]: paths[group[0]] for group in components(len(paths), sorted(pairs)) for place in group}
