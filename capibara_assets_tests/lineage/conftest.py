"""A small store by hand: logs, groups, datasets of two domains, their trainings, agreements and a merged model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.datasets.schema import Example, Group, LeftOut
from capibara_assets.executions.schema import Execution, LogFile, Quarantined
from capibara_assets.lineage.ancestors import upstream_key
from capibara_assets.lineage.records import Results
from capibara_assets.playbooks.schema import Bullet, Consolidated
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.records import Record, table
from capibara_assets.storage.store import ArtifactStore, Table
from capibara_assets.training.data.order import shards
from capibara_assets_tests.datasets.conftest import run

VOTERS = 4
GROUPS = 40  # of the python train split: enough for voters to train on different parts


def example(example_id: str, group: str, split: str, executions: Sequence[str], **values: Any) -> Example:
    defaults = {
        "domain": "python",
        "kind": "solve",
        "language": "python",
        "messages": json.dumps([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]),
        "difficulty": 0.5,
        "quality": 0.9,
        "cluster_id": example_id,
        "weight": 1.0,
        "balance": 1.0,
        "verified": "recorded",
        "not_replayed": None,
        "provenance": "experience",
        "bullet_ids": [],
        "sandbox_ids": ["s"],
        "licence": "MIT",
        "source": "fixture",
        "tenants": [],
        "source_places": ["a.jsonl:1"],
    }
    known = {"example_id": example_id, "group_id": group, "split": split, "execution_ids": list(executions)}
    return Example(**{**defaults, **known, **values})


@dataclass
class Made:
    """The store under construction."""

    store: ArtifactStore
    current: dict[tuple[str, str | None], Artifact]
    folder: Path

    def put(
        self,
        asset: str,
        partition: str | None,
        *inputs: Artifact,
        tables: dict[str, tuple[type[Record], Sequence[Record]]] | None = None,
        documents: dict[str, Any] | None = None,
        trees: dict[str, Path] | None = None,
        settings: dict[str, str] | None = None,
    ) -> Artifact:
        artifact = self.store.publish(
            asset,
            partition,
            tables={name: Table(model, table(model, rows)) for name, (model, rows) in (tables or {}).items()},
            documents=documents,
            trees=trees,
            inputs={
                "upstream": {upstream_key(one.name, one.partition): one.digest for one in inputs},
                "settings": settings or {},
            },
        )
        self.current[asset, partition] = artifact
        return artifact

    def train(self, domain: str, dataset: Artifact, names: Sequence[str], further: Sequence[Artifact] = ()) -> Artifact:
        """Voters of a domain; the first of them trains on further datasets, too."""
        folder = self.folder / f"{domain}-{dataset.digest[:8]}"
        for number, name in enumerate(names):
            (folder / name).mkdir(parents=True)
            stated = {
                "digest": f"{domain}-{name}-weights-{dataset.digest[:6]}",
                "shard": number,
                "seed": 42,
                "voter_seed": number,
                "base_digest": "base-digest",
            }
            if further and number == 0:
                stated["further_datasets"] = {str(one.partition): one.digest for one in further}
            (folder / name / "manifest.json").write_text(json.dumps(stated))
        missing = {f"missing-{n}": "killed" for n in range(VOTERS - len(names))}
        return self.put(
            "trained_adapters",
            domain,
            dataset,
            *further,
            trees={"voters": folder},
            documents={"summary": {"finished": list(names), "missing": missing}},
            settings={"recipe:training": "training-recipe"},
        )

    def agree(self, domain: str, adapters: Artifact, dataset: Artifact, accepted: Sequence[str]) -> Artifact:
        voters = [{"name": name, "accepted": name in accepted} for name in sorted({*accepted, "v1"})]
        context = {"domain": domain, "trained_adapters": adapters.digest, "moe_dataset": dataset.digest}
        certificate = {"digest": f"certificate-of-{domain}", "voters": voters, "context": context}
        return self.put("consensus_checkpoint", domain, adapters, dataset, documents={"certificate": certificate})

    def adopt(self, domain: str) -> Artifact:
        """A result of a round: one voter says what it was trained on, one has no manifest, one was rejected."""
        folder = self.folder / f"{domain}-round"
        stated = {"told": {"dataset_digest": "d" * 64, "further_datasets": {"sql": "e" * 64, "ml": 5}}, "silent": None}
        for name, manifest in {**stated, "refused": {"dataset_digest": "f" * 64}}.items():
            (folder / name).mkdir(parents=True)
            (folder / name / "adapter_config.json").write_text("{}")
            if manifest is not None:
                (folder / name / "manifest.json").write_text(json.dumps(manifest))
        voters = [
            {"name": name, "accepted": name in stated, "digest": f"{name}-weights"}
            for name in sorted((*stated, "refused"))
        ]
        certificate = {"digest": "certificate-of-round", "voters": voters, "context": {"round": "r" * 64}}
        terms = {
            "domain": domain,
            "keys": {name: f"key-of-{name}" for name in (*stated, "refused")},
            "dataset": {"table": "t" * 64},
        }
        documents = {"certificate": certificate, "round": terms}
        return self.put("consensus_checkpoint", domain, trees={"voters": folder}, documents=documents)

    @property
    def results(self) -> Results:
        return Results(self.store, self.current)


def executions() -> list[Execution]:
    rows = [run(f"p{i:02d}", f"x = {i}", f"s{i}", source_line=i + 1, minute=i) for i in range(GROUPS)]
    rows[0] = run("p00", "x = 0", "s0", tenant="acme", licence="CC-BY-4.0", source="A. Author, example.org", minute=0)
    rows += [run(f"q{i}", f"SELECT {i}", "t", domains=["sql"], language="sql", source_line=i + 1) for i in range(3)]
    return rows


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """40 python executions, each an example of its own group; p00 also in a validation and a context; three of sql."""
    made = Made(ArtifactStore(tmp_path / "store"), {}, tmp_path / "voters")
    rows = executions()
    logs = made.put(
        "e2b_logs",
        None,
        tables={"executions": (Execution, rows), "quarantine": (Quarantined, []), "files": (LogFile, [])},
    )
    books = made.put("ace_playbooks", None, tables={"bullets": (Bullet, [bullet("book/b-1"), bullet("book/b-2")])})
    merged = Consolidated(
        bullet_id="book/b-1", content="advice", section="", domains=["python"], helpful=1, harmful=0, score=0.5,
        origins=["book/b-1", "book/b-2"], agents=["a"], rank=1, compressed=False,
        evidence=[],
    )  # fmt: skip
    made.put("consolidated_playbook", "python", books, tables={"bullets": (Consolidated, [merged])})
    groups = [
        Group(
            unit_id=r.execution_id, group_id=f"g-{r.execution_id}", split="train", reason_left_out=None, sandbox_id="s"
        )
        for r in rows
    ]
    made.put("example_groups", None, logs, tables={"groups": (Group, groups)})
    owned = {"tenants": ["acme"], "licence": "CC-BY-4.0", "source": "A. Author, example.org"}
    python = [
        example(f"e-{i:02d}", f"g-p{i:02d}", "train", [f"p{i:02d}"], **(owned if i == 0 else {})) for i in range(39)
    ]
    python[1] = example("e-01", "g-p01", "train", ["p01", "p02"], kind="repair", bullet_ids=["book/b-2"])
    python += [example(f"v-{i}", f"g-v{i}", "validation", ["p39"]) for i in range(VOTERS)]
    python_set = made.put(
        "moe_dataset",
        "python",
        tables={"examples": (Example, python), "left_out": (LeftOut, [LeftOut(unit_id="p03", reason="for no reason")])},
    )
    sql = [example(f"q-{i}", f"g-q{i}", "train", [f"q{i}"], domain="sql", language="sql") for i in range(2)]
    sql += [example("q-2", "g-q2", "validation", ["q2"], domain="sql", language="sql")]
    sql_set = made.put("moe_dataset", "sql", tables={"examples": (Example, sql), "left_out": (LeftOut, [])})
    names = [f"v{i}" for i in range(VOTERS)]
    python_adapters, sql_adapters = made.train("python", python_set, names), made.train("sql", sql_set, names[:3])
    agreed = [
        made.agree("python", python_adapters, python_set, ["v0", "v2", "v3"]),
        made.agree("sql", sql_adapters, sql_set, names[:3]),
    ]
    made.put("merged_checkpoint", None, *agreed, python_set, sql_set, documents={"report": {}})
    return made


def bullet(bullet_id: str) -> Bullet:
    return Bullet(
        bullet_id=bullet_id, playbook_id="book", local_id=bullet_id[5:], agent_id="a", section="", title=None,
        content=f"advice of {bullet_id}", helpful=1, harmful=0, neutral=0, counters_exact=None, tags=[],
        domains=["python"], status="active", replaces=None, created_at=None, updated_at=None, flags=[],
        evidence=[], source_file="book.txt", source_line=7,
    )  # fmt: skip


def own_shard(group: str) -> int:
    """The voter that does not train on this python group."""
    return shards((f"g-p{i:02d}" for i in range(39)), VOTERS)[group]
