"""datatrove's MinHash pipeline, or text-dedup's, on the same documents. Run by the bench `dedup`.

    python peer_dedup.py datatrove|datatrove-split|text-dedup FOLDER OUT WORKERS PERMUTATIONS BANDS NGRAM

FOLDER holds `*.jsonl` files of {"text"}; their words are in lower case with single spaces between them, so that
every tokeniser sees the same ones. Writes OUT/labels.npy, the cluster of each document in the order of the files and
lines, and prints one JSON line: seconds from the first file opened to the clusters known (imports,
filtering the documents and writing them are not counted).
"""

import json
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

Measured = tuple[float, list[int]]  # seconds, cluster of each document


def datatrove(
    folder: Path, out: Path, workers: int, permutations: int, bands: int, ngram: int, split: bool = False
) -> Measured:
    """Signatures, buckets, clusters.

    Words are told apart by the tokeniser that it has for English, or, with `split`, by `str.split`: faster than any
    that it ships, and the same words here.
    """
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.utils.text import TextNormConfig
    from datatrove.utils.typeshelper import Languages
    from datatrove.utils.word_tokenizers import WordTokenizer
    from loguru import logger

    class Words(WordTokenizer):
        def word_tokenize(self, text: str) -> list[str]:
            return text.split(" ")

        def sent_tokenize(self, text: str) -> list[str]:
            raise NotImplementedError

        def span_tokenize(self, text: str) -> list[tuple[int, int]]:
            raise NotImplementedError

    logger.remove()
    files = sorted(folder.glob("*.jsonl"))
    config = MinhashConfig(
        n_grams=ngram,
        num_buckets=bands,
        hashes_per_bucket=permutations // bands,
        norm_config=TextNormConfig(norm_numbers=False),
    )
    signatures, buckets, clusters = (str(out / name) for name in ("signatures", "buckets", "clusters"))
    stages = [
        (
            [
                JsonlReader(str(folder)),
                MinhashDedupSignature(signatures, config, Words() if split else Languages.english),
            ],
            len(files),
        ),
        ([MinhashDedupBuckets(signatures, buckets, config=config, lines_to_buffer=1000)], bands),
        ([MinhashDedupCluster(buckets, clusters, config, save_cluster_id=True, lines_to_buffer=1000)], 1),
    ]
    started = time.perf_counter()
    for number, (pipeline, tasks) in enumerate(stages):
        LocalPipelineExecutor(
            pipeline=pipeline, tasks=tasks, workers=min(workers, tasks), logging_dir=str(out / f"logs{number}")
        ).run()
    seconds = time.perf_counter() - started
    labels, base = [], 0
    for number, path in enumerate(files):
        count = lines(path)
        own = list(range(-1 - base, -1 - base - count, -1))  # no cluster: one of its own
        found = Path(clusters) / f"{number:06d}.clusters"
        if found.is_file():
            for document, cluster in np.fromfile(found, "<u4").reshape(-1, 2).tolist():
                own[document] = cluster
        labels += own
        base += count
    return seconds, labels


def lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def text_dedup(folder: Path, out: Path, workers: int, permutations: int, bands: int, ngram: int) -> Measured:
    """Its `minhash` command up to the clusters."""
    import datasets
    from text_dedup import logger, minhash
    from text_dedup.utils import IOArgs, MetaArgs, MinHashArgs

    class Clustered(Exception):
        """What comes next would filter and write the documents."""

    def stop() -> None:
        raise Clustered

    minhash.DisableReferenceCount = stop
    logger.disabled = True
    datasets.disable_progress_bars()
    files = sorted(folder.glob("*.jsonl"))
    arguments = {
        "io_args": IOArgs(
            path="json",
            output=str(out / "kept"),
            data_files=[str(path) for path in files],
            split="train",
            cache_dir=str(out / "cache"),
            num_proc=workers,
        ),
        "meta_args": MetaArgs(column="text", batch_size=10_000),
        "minhash_args": MinHashArgs(
            ngram=ngram, num_perm=permutations, b=bands, r=permutations // bands, hash_func="xxh3"
        ),
    }
    started = time.perf_counter()
    try:
        minhash.main.callback.__wrapped__.__wrapped__.__wrapped__(**arguments)
    except Clustered:
        seconds = time.perf_counter() - started
    return seconds, [minhash.uf.find(index) for index in range(sum(map(lines, files)))]


def main() -> None:
    peer, folder, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    run = {"datatrove": datatrove, "datatrove-split": partial(datatrove, split=True), "text-dedup": text_dedup}[peer]
    seconds, labels = run(folder, out, *map(int, sys.argv[4:]))
    np.save(out / "labels.npy", np.array(labels, np.int64))
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main()
