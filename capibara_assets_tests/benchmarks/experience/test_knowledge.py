"""The bench `classify|repair`: where the input comes from, what is said without labels, honest copies."""

import json
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from benchmarks.command import benches
from benchmarks.experience.corpus import perturbed_code
from benchmarks.experience.study import Copies, label, study_all
from benchmarks.experience_input import bench_input
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.deployment.locations import resources_root
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets.executions.parsing import parse_sql
from capibara_assets.executions.patterns.extract import extract_patterns
from capibara_assets.executions.patterns.idioms_javascript import javascript_idioms
from capibara_assets.executions.patterns.idioms_python import python_idioms
from capibara_assets.executions.recipe import ExperienceRecipe
from capibara_assets.executions.selection import of_domain
from capibara_assets_tests.executions.conftest import envelope, executed, line

pytestmark = pytest.mark.extended

GOOD = "def area(r):\n    return 3.14 * r * r\nassert area(1) == 3.14"
BAD = GOOD.replace("r * r", "r + r")


@pytest.fixture
def experience(tmp_path: Path) -> Path:
    records = [
        envelope(BAD, execution_id="a", execution=executed(error=("AssertionError", "", "Traceback"))),
        envelope(GOOD, execution_id="b", timestamp="2026-10-06T00:00:00Z"),
        envelope("import torch\ntorch.ones(3).sum()", execution_id="c", sandbox_id="other"),
    ]
    (tmp_path / "e2b_logs").mkdir()
    (tmp_path / "e2b_logs" / "log.jsonl").write_bytes(b"".join(line(record) + b"\n" for record in records))
    return tmp_path


def write_labels(folder: Path) -> None:
    common = {"language": "python", "outcome": "ok"}
    labels = [
        {"execution_id": "a", "sandbox_id": "sandbox", "source": "mbpp"} | common | {"outcome": "error"},
        {"execution_id": "b", "sandbox_id": "sandbox", "source": "mbpp", "repairs": "a"} | common,
        {"execution_id": "c", "sandbox_id": "other", "source": "notebooks"} | common,
    ]
    (folder / "labels.jsonl.gz").write_bytes(b"".join(line(entry) + b"\n" for entry in labels))
    (folder / "sources.json").write_text('{"mbpp": {"domain": "python"}, "notebooks": {"domain": "api"}}')


def test_classify_says_what_it_cannot_measure(experience: Path) -> None:
    command = ["classify", "--experience", str(experience), "--workers", "1", "--json"]
    without = json.loads(CliRunner().invoke(benches, command, catch_exceptions=False).output)
    assert "no labels" in without["not_measured"]
    assert without["abstained"] == 0
    assert without["executions_per_s"] > 0
    write_labels(experience)
    scored = json.loads(CliRunner().invoke(benches, command, catch_exceptions=False).output)
    assert min(scored["classification_alone_per_s"], scored["patterns_alone_per_s"]) > 0
    assert scored["accuracy_by_family"] == {"mbpp": 1.0, "notebooks": 0.0}  # torch is no API
    assert (scored["worst_source_accuracy"], scored["mean_source_accuracy"]) == (0.0, 0.5)


def test_repair_is_judged_by_labels(experience: Path) -> None:
    command = ["repair", "--experience", str(experience), "--json"]
    with pytest.raises(InputError, match="--labels"):
        CliRunner().invoke(benches, command, catch_exceptions=False)
    write_labels(experience)
    scored = json.loads(CliRunner().invoke(benches, command, catch_exceptions=False).output)
    assert (scored["precision"], scored["recall"], scored["pairs"]) == (1.0, 1.0, 1)


def test_the_input_is_what_was_asked_for_or_shared_or_shipped(
    experience: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench_input(str(experience), None).labels is None
    monkeypatch.setenv("CAPIBARA_SHARED", str(tmp_path / "none"))
    assert bench_input(None, None).name == "shipped"
    (tmp_path / "shared" / "data" / "experience").mkdir(parents=True)
    monkeypatch.setenv("CAPIBARA_SHARED", str(tmp_path / "shared"))
    assert bench_input(None, None).name == "shared"
    for missing in ((str(tmp_path / "gone"), None), (str(experience), str(tmp_path / "gone"))):
        with pytest.raises(InputError, match=r"no (experience folder|labels file) at"):
            bench_input(*missing)


def test_copies_are_other_code_of_the_same_structure() -> None:
    python = "def area(r):\n    total = 3 * r\n    return total\nassert area(7) == 21"
    javascript = "const twice = (x) => { const y = x * 2; return y }\ntwice(4)"
    query = "SELECT a FROM b WHERE c > 12"
    for code, find in ((python, python_idioms), (javascript, javascript_idioms)):
        texts = [perturbed_code(code, copy) for copy in range(4)]
        assert len(set(texts)) == 4
        assert texts[0] == code
        assert {tuple(idiom.kind for idiom in find(text)) for text in texts} == {("function",)}
    assert len({perturbed_code(query, copy) for copy in range(4)}) == 4
    assert parse_sql(perturbed_code(query, 3)) is not None
    for unbound in ("print(half(x))", "%matplotlib inline", ""):
        assert len({perturbed_code(unbound, copy) for copy in range(9)}) == 9


def test_what_is_timed_makes_the_tables_of_the_assets(tmp_path: Path) -> None:
    executions = read_experience(resources_root() / "experience", now=datetime.now(UTC)).executions
    some = executions.filter(pl.col("sandbox_id").rank("dense") % 8 == 0)
    copies = Copies(some, tmp_path, shares=3)
    shares = copies.shares(2)
    held = pl.concat([pl.read_ipc(share) for share in shares])
    assert sorted(held["execution_id"]) == sorted(some["execution_id"])
    assert held.group_by("sandbox_id").agg(pl.len()).height == some["sandbox_id"].n_unique()
    labels = dict(zip(held["execution_id"], [domains for share in shares for domains in label(share)], strict=True))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        tables = study_all(pool, shares)
    domains = pl.Series("domains", [labels[i] for i in held["execution_id"]], dtype=pl.List(pl.String))
    recipe = shipped_recipe("experience", ExperienceRecipe)
    for domain in Domain:
        own = of_domain(held.with_columns(domains), domain)
        assert tables[domain].equals(extract_patterns(own, domain, recipe))
    assert sum(table.height for table in tables.values()) > 20
