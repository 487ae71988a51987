"""Clusters on disk: the same as in memory, whatever the batches, and within a ceiling of memory."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.datasets.spilled_clusters import cluster_documents
from capibara_assets.datasets.duplicates.near import components, near_texts
from capibara_assets.datasets.recipe import NearDuplicates

SETTINGS = NearDuplicates.model_validate({})
LARGE = """
import json, resource, sys
from pathlib import Path
import numpy as np
from capibara_assets.datasets.recipe import NearDuplicates
from benchmarks.datasets.spilled_clusters import cluster_documents
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
documents, folder = int(sys.argv[1]), Path(sys.argv[2])
def batches():
    chance = np.random.default_rng(5)
    for start in range(0, documents, 5000):
        rows = chance.integers(0, 200_000, (2500, 24)).tolist()
        yield [text for row in rows for text in (" ".join(map(str, row)), " ".join(map(str, [*row[:-1], "other"])))]
found = cluster_documents(batches(), folder, NearDuplicates.model_validate({}), counters=1 << 22)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({
    "documents": len(found.labels),
    "clusters": len(set(found.labels.tolist())),
    "grown_mib": (after - before) // 1024,
    "spilled": sorted(path.name for path in folder.iterdir()),
}))
"""


def documents(count: int) -> list[str]:
    """Texts of which every third is an edited copy of an earlier one, every tenth an exact one, some are empty."""
    chance = random.Random(3)
    found: list[str] = []
    for number in range(count):
        words = [f"w{chance.randrange(4000)}" for _ in range(chance.randrange(0, 60))]
        if number % 3 == 2:
            words = found[chance.randrange(len(found))].split()
            for _ in range(chance.randrange(3)):
                if words:
                    words[chance.randrange(len(words))] = f"v{chance.randrange(4000)}"
        if number % 10 == 9:
            words = found[chance.randrange(len(found))].split()
        found.append(" ".join(words))
    return found


def test_the_same_clusters_as_in_memory_whatever_the_batches(tmp_path: Path) -> None:
    texts = documents(1500)
    pairs = near_texts(texts, SETTINGS)
    expected = components(pairs.left, pairs.right, len(texts))
    assert 200 < len(texts) - len(set(expected.tolist())) < 2000
    for number, size in enumerate((3000, 700, 1)):
        folder = tmp_path / str(number)
        folder.mkdir()
        part = texts if size > 1 else texts[:60]
        found = cluster_documents((part[i : i + size] for i in range(0, len(part), size)), folder, SETTINGS, 1 << 12)
        if size > 1:
            assert np.array_equal(found.labels, expected)
        else:
            small = near_texts(part, SETTINGS)
            assert np.array_equal(found.labels, components(small.left, small.right, len(part)))


def test_nothing_to_cluster(tmp_path: Path) -> None:
    assert len(cluster_documents([], tmp_path, SETTINGS, 1 << 10).labels) == 0
    (tmp_path / "empty").mkdir()
    assert cluster_documents([["", " "]], tmp_path / "empty", SETTINGS, 1 << 10).labels.tolist() == [0, 1]


@pytest.mark.extended
def test_memory_stays_while_documents_grow(tmp_path: Path) -> None:
    grown = []
    for count in (50_000, 200_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        command = [sys.executable, "-c", LARGE, str(count), str(folder)]
        environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        assert found["documents"] == count
        assert found["clusters"] == count // 2  # each text and its copy
        grown.append(found["grown_mib"])
    assert grown[1] < 300
    assert grown[1] - grown[0] < 60  # four times the documents: sixteen bytes for each, and what a file holds
