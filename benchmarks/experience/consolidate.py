"""The bench `consolidate`: near-duplicates found, round trips, speed and memory, on copies with a known answer."""

import json
import os
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.output import print_result


@click.command("consolidate")
@click.option("--experience", help="Folder of experience; default: what ships.")
@click.option("--bullets", default=50_000, show_default=True, help="Bullets of the speed measurement.")
@click.option("--seed", default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def consolidate_command(experience: str | None, bullets: int, seed: int, as_json: bool) -> None:
    """Merging of seeded rephrasings and of changed advice, round trips, speed, and independence of file order."""
    from capibara_assets.deployment.locations import resources_root

    folder = Path(experience) if experience else resources_root() / "experience"
    print_result(
        {
            "experience": experience or "shipped",
            "seed": seed,
            **measure_duplicates(folder, seed),
            **measure_round_trips(folder),
            **measure_order(folder, seed),
            **measure_speed(folder, bullets, seed),
        },
        as_json,
    )


def lessons_of(folder: Path) -> list[str]:
    """The distinct active lessons of a folder's playbooks, in a fixed order."""
    from capibara_assets.playbooks.history import advice_of
    from capibara_assets.playbooks.read import read_playbooks

    advice = advice_of(read_playbooks(folder).bullets)
    return sorted({each.text for each in advice if each.bullet["status"] == "active"})


def measure_duplicates(folder: Path, seed: int) -> dict[str, Any]:
    """recall: rephrasings that merged with what they rephrase; precision: merged copies that are the same advice.

    Each copy is consolidated beside all originals and copies. Originals that merge among themselves say nothing (real
    playbooks hold near-duplicates): a changed copy counts as a false merge only when it joins its own original.
    """
    from benchmarks.experience.seeded_advice import OTHER, SAME, seeded_copies

    texts = lessons_of(folder)
    copies = seeded_copies(texts, seed)
    group = groups_of([*texts, *(copy.text for copy in copies)])
    merged: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for place, copy in enumerate(copies, start=len(texts)):
        total[copy.edit] += 1
        merged[copy.edit] += group[place] == group[copy.base]
    found, false = sum(merged[edit] for edit in SAME), sum(merged[edit] for edit in OTHER)
    return {
        "lessons": len(texts),
        "copies": len(copies),
        "recall": round(found / max(1, sum(total[edit] for edit in SAME)), 4),
        "precision": round(found / max(1, found + false), 4),
        "merged_share": {edit: round(merged[edit] / total[edit], 4) for edit in (*SAME, *OTHER) if total[edit]},
    }


def groups_of(texts: list[str]) -> list[str]:
    """The lesson that each text ended in, by consolidating one bullet of one agent for each text."""
    from capibara_assets.playbooks.consolidate import consolidate
    from capibara_assets.playbooks.graduation import AgentFilter, graduate

    with TemporaryDirectory() as home:
        playbooks = write_and_read(Path(home), texts)
    everybody = AgentFilter(min_graduation_score=0, min_interactions=0, min_success_rate=0)
    found = consolidate(playbooks.bullets, graduate(playbooks, everybody), "general", top_k=len(texts))
    lesson = {origin: row["bullet_id"] for row in found.bullets.iter_rows(named=True) for origin in row["origins"]}
    return [lesson[f"{place}.json/b-{place:07d}"] for place in range(len(texts))]


def write_and_read(home: Path, texts: list[str]) -> Any:
    """The texts as one playbook each, of an agent each: nothing merges as an agent's own history."""
    from dataclasses import replace

    import polars as pl

    from capibara_assets.playbooks.read import read_playbooks

    folder = home / "playbooks"
    folder.mkdir()
    for place, text in enumerate(texts):
        bullet = {"id": f"b-{place:07d}", "content": text, "helpful_count": 3, "harmful_count": 1}
        document = {"agent_id": f"agent-{place}", "bullets": [bullet]}
        (folder / f"{place}.json").write_text(json.dumps(document), "utf-8")
    read = read_playbooks(home)
    general = pl.lit(["general"], dtype=pl.List(pl.String))
    return replace(read, bullets=read.bullets.with_columns(domains=general))


def measure_round_trips(folder: Path) -> dict[str, Any]:
    """Playbooks that are the same after writing and reading again, as ACE JSON and, where text can hold it, as text."""
    import polars as pl

    from capibara_assets.playbooks.formats.write import to_ace_json, to_ace_text
    from capibara_assets.playbooks.read import read_playbooks

    core = ["local_id", "section", "content", "helpful", "harmful", "counters_exact"]
    more = [*core, "title", "neutral", "tags", "status", "created_at", "updated_at", "domains"]
    bullets = read_playbooks(folder).bullets
    tried, equal = 0, 0
    for _, one in bullets.group_by("playbook_id", maintain_order=True):
        forms: list[tuple[str, bytes, list[str]]] = [("p.json", to_ace_json(one), more)]
        if one["title"].is_null().all() and (one["status"] == "active").all():
            forms.append(("p.txt", to_ace_text(one).encode(), core))
        for name, data, columns in forms:
            with TemporaryDirectory() as home:
                (Path(home) / "playbooks").mkdir()
                (Path(home) / "playbooks" / name).write_bytes(data)
                back = read_playbooks(Path(home)).bullets
            tried += 1
            equal += back.sort("local_id").select(columns).equals(one.sort("local_id").select(pl.col(columns)))
    return {"round_trips": tried, "round_trips_equal": equal}


def measure_order(folder: Path, seed: int) -> dict[str, Any]:
    """Whether the consolidated tables are the same whatever the order of the rows, over all domains."""
    from capibara_assets.domains import DOMAINS
    from capibara_assets.playbooks.consolidate import consolidate
    from capibara_assets.playbooks.graduation import AgentFilter, graduate
    from capibara_assets.playbooks.read import read_playbooks
    from capibara_assets.playbooks.schema import Consolidated
    from capibara_assets.storage.records import frame_digest

    read = read_playbooks(folder)
    agents = graduate(read, AgentFilter(min_graduation_score=0, min_interactions=0, min_success_rate=0))
    digests: dict[str, set[str]] = {}
    for turn in range(3):
        rows = read.bullets if turn == 0 else read.bullets.sample(fraction=1.0, shuffle=True, seed=seed + turn)
        for domain in DOMAINS:
            found = consolidate(rows, agents, domain)
            digests.setdefault(domain.value, set()).add(frame_digest(Consolidated, found.bullets))
    return {"order_independent": all(len(found) == 1 for found in digests.values())}


def measure_speed(folder: Path, bullets: int, seed: int) -> dict[str, Any]:
    """Bullets a second from the table to the consolidated playbook, and peak memory, in a process of its own."""
    code = (
        "import sys; from benchmarks.experience.consolidate import run_speed; "
        "run_speed(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))"
    )
    command = [sys.executable, "-c", code, str(folder), str(bullets), str(seed)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": "0"}
    )
    return dict(json.loads(done.stdout))


def run_speed(folder: str, bullets: int, seed: int) -> None:
    """The child's part: lessons with other names and figures, half of them near-duplicates; prints JSON."""
    from capibara_assets.playbooks.consolidate import TOP_K, consolidate
    from capibara_assets.playbooks.graduation import AgentFilter, graduate

    texts = crowd(lessons_of(Path(folder)), bullets, seed)
    with TemporaryDirectory() as home:
        playbooks = one_book(Path(home), texts)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    agents = graduate(playbooks, AgentFilter(min_graduation_score=0, min_interactions=0, min_success_rate=0))
    graduated = time.perf_counter()
    found = consolidate(playbooks.bullets, agents, "general", top_k=TOP_K["large"], budget_tokens=2048)
    seconds = time.perf_counter() - start
    counts = found.statistics["bullets"]
    result = {
        "bullets": len(texts),
        "seconds": round(seconds, 2),
        "graduate_s": round(graduated - start, 2),
        "bullets_per_s": round(len(texts) / seconds),
        "duplicates_merged": counts["duplicates_merged"],
        "kept": counts["kept"],
        "compressed": found.statistics["compressed"],
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "added_memory_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024,
    }
    sys.stdout.write(json.dumps(result))


def crowd(texts: list[str], count: int, seed: int) -> list[str]:
    """`count` bullets: lessons whose longer words are other words, and after each a rephrasing of it."""
    from benchmarks.experience.seeded_advice import SAME

    dice = random.Random(seed)
    edits = list(SAME.values())
    made: list[str] = []
    while len(made) < count:
        words = [
            f"{word}{dice.randrange(10**4):04d}" if word.isalpha() and len(word) > 5 and dice.random() < 0.5 else word
            for word in dice.choice(texts).split(" ")
        ]
        text = " ".join(words)
        made += [text, dice.choice(edits)(text, dice)]
    return made[:count]


def one_book(home: Path, texts: list[str]) -> Any:
    """The texts as two agents' playbooks, each rephrasing with the agent who does not hold the original."""
    from dataclasses import replace

    import polars as pl

    from capibara_assets.playbooks.read import read_playbooks

    (home / "playbooks").mkdir()
    for agent in (0, 1):
        entries = [
            {"id": f"b-{place:07d}", "content": text, "helpful_count": place % 50, "harmful_count": place % 7}
            for place, text in enumerate(texts)
            if place % 2 == agent
        ]
        document = {"agent_id": f"agent-{agent}", "bullets": entries}
        (home / "playbooks" / f"{agent}.json").write_text(json.dumps(document), "utf-8")
    read = read_playbooks(home)
    general = pl.lit(["general"], dtype=pl.List(pl.String))
    return replace(read, bullets=read.bullets.with_columns(domains=general))
