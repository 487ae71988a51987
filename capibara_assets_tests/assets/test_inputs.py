"""What an asset reads is what Dagster's latest materializations name, and all of it is on record, absence too."""

from pathlib import Path
from typing import Any

import dagster as dg
import pydantic
import pytest
from pydantic import Field

from capibara_assets.assets.inputs import (
    DIGEST,
    HELD,
    INPUTS,
    Inputs,
    Origin,
    latest_digest,
    latest_metadata,
    materialized,
    source_name,
)
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError
from capibara_assets.executions.ingest.ingest import ingest, ledger_name
from capibara_assets.metadata.page import AssetPage, KeyFigure, PageVerdict
from capibara_assets.partitions import domains
from capibara_assets.playbooks.schema import Bullet
from capibara_assets.resources import Recipes, Store
from capibara_assets.storage.records import Record, table
from capibara_assets.storage.store import MissingArtifact
from capibara_assets_tests.executions.conftest import NOW, envelope, line
from capibara_assets_tests.lineage.conftest import bullet as a_bullet
from capibara_assets_tests.published import Published, adapter_folder

PYTHON, SQL = Domain.PYTHON, Domain.SQL
PAGE = AssetPage(PageVerdict("good", "all is well"))


class Settings(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    factor: int = 1


# --- the latest digest -----------------------------------------------------------------------------------------------


def test_never_materialized_has_no_digest(published: Published):
    assert latest_digest(published.instance, "facts") is None
    assert latest_digest(published.instance, "facts", "python") is None
    assert latest_metadata(published.instance, "facts") == {}


def test_each_partition_has_its_own_latest(published: Published):
    first = published.put("facts", PYTHON, documents={"x": 1})
    other = published.put("facts", SQL, documents={"x": 2})
    second = published.put("facts", PYTHON, documents={"x": 3})
    assert latest_digest(published.instance, "facts", "python") == second.digest != first.digest
    assert latest_digest(published.instance, "facts", "sql") == other.digest
    assert latest_digest(published.instance, "facts", "ml") is None


def test_it_is_what_dagster_names_not_what_the_store_points_at(published: Published):
    """An artifact that was published by a step that died before it could say so is not an input."""
    named = published.put("facts", documents={"x": 1})
    orphan = published.inputs().publish("facts", None, documents={"x": 2})
    assert published.store.open().latest("facts", None).digest == orphan.digest
    assert published.inputs().artifact("facts").digest == named.digest


def test_a_materialization_without_a_digest_counts_as_none(published: Published):
    published.put("facts", documents={"x": 1})
    published.instance.report_runless_asset_event(dg.AssetMaterialization("facts"))
    assert latest_digest(published.instance, "facts") is None


# --- Inputs ----------------------------------------------------------------------------------------------------------


def test_available_records_presence_and_absence(published: Published):
    artifact = published.put("facts", PYTHON, documents={"x": 1})
    inputs = published.inputs()
    assert inputs.available("facts", PYTHON).document("x") == 1
    assert inputs.available("facts", SQL) is None and inputs.available("logs") is None
    assert inputs.record()["upstream"] == {"facts|python": artifact.digest, "facts|sql": "", "logs|_": ""}


def test_artifact_says_what_is_missing(published: Published):
    with pytest.raises(InputError, match=r"^facts\[sql\] is not materialized yet"):
        published.inputs().artifact("facts", SQL)
    with pytest.raises(InputError, match=r"^logs is not materialized yet"):
        published.inputs().artifact("logs")


def test_every_gives_those_there_are_in_order_and_records_all(published: Published):
    for domain in (Domain.API, PYTHON):
        published.put("facts", domain, documents={"x": domain.value})
    inputs = published.inputs()
    assert list(inputs.every("facts")) == [PYTHON, Domain.API]
    upstream = inputs.record()["upstream"]
    assert set(upstream) == {f"facts|{domain}" for domain in DOMAINS}
    assert [name for name, digest in upstream.items() if digest] == ["facts|python", "facts|api"]


def test_some_asks_for_one_domain_at_least(published: Published):
    inputs = published.inputs()
    with pytest.raises(InputError, match="nothing_of_it is not materialized yet for any domain"):
        inputs.some("nothing_of_it")


def test_an_arrival_changes_the_digest_of_the_record(published: Published):
    def digest() -> str:
        inputs = published.inputs()
        inputs.every("facts")
        return inputs.digest()

    before = digest()
    assert digest() == before
    published.put("facts", SQL, documents={"x": 1})
    arrived = digest()
    published.put("facts", SQL, documents={"x": 2})
    assert len({before, arrived, digest()}) == 3


def test_a_named_artifact_that_is_gone_from_the_store_is_said_so(published: Published, tmp_path: Path):
    published.put("facts", documents={"x": 1})
    elsewhere = Store(root=str(tmp_path / "empty"), work=str(tmp_path / "work"))
    with pytest.raises(MissingArtifact, match="no facts with digest"):
        Inputs(published.instance, elsewhere.open()).artifact("facts")


def test_what_failed_a_blocking_check_counts_as_absent(published: Published):
    good, bad = (published.put("facts", domain, documents={"x": domain.value}) for domain in (PYTHON, SQL))
    inputs = Inputs(published.instance, published.store.open(), held=frozenset({source_name("facts", SQL)}))
    assert list(inputs.every("facts")) == [PYTHON]
    assert inputs.record()["upstream"]["facts|sql"] == "" != bad.digest
    assert inputs.record()["upstream"]["facts|python"] == good.digest
    with pytest.raises(InputError, match=r"^facts\[sql\] failed a blocking check"):
        inputs.artifact("facts", SQL)


def test_settings_and_recipes_are_recorded_by_digest(published: Published, tmp_path: Path):
    (tmp_path / "dataset.yaml").write_text("factor: 3\n")
    recipes = Recipes(folder=str(tmp_path))
    inputs = published.inputs()
    assert inputs.recipe(recipes, "dataset", Settings).factor == 3
    inputs.setting("base_model", "a-digest")
    inputs.setting("target", Settings(factor=5))
    recorded = inputs.record()["settings"]
    assert recorded["recipe:dataset"] == recipes.digest("dataset") and recorded["base_model"] == "a-digest"
    other = published.inputs()
    other.setting("target", Settings(factor=6))
    assert recorded["target"] != other.record()["settings"]["target"]


def test_the_memory_of_an_asset_is_not_one_of_its_inputs(published: Published):
    published.put("groups", documents={"x": 1})
    inputs = published.inputs()
    assert inputs.previous("groups").document("x") == 1 and inputs.previous("absent") is None
    assert inputs.record()["upstream"] == {}


def test_the_manifest_carries_the_record(published: Published):
    published.put("logs", documents={"x": 1})
    inputs = published.inputs()
    inputs.artifact("logs")
    inputs.setting("target", "t")
    artifact = inputs.publish("facts", PYTHON, documents={"x": 2})
    assert artifact.manifest.inputs == inputs.record()
    assert artifact.manifest.inputs["upstream"]["logs|_"] == latest_digest(published.instance, "logs")


# --- in a run --------------------------------------------------------------------------------------------------------


def test_a_run_names_digest_record_and_code_version(published: Published):
    @dg.asset(code_version="7", partitions_def=domains)
    def facts(context: dg.AssetExecutionContext, store: Store) -> dg.MaterializeResult:
        inputs = Inputs.of(context, store)
        inputs.available("logs")
        artifact = inputs.publish("facts", Domain(context.partition_key), documents={"x": 1})
        return materialized(artifact, inputs, AssetPage(PageVerdict("good", "x"), contents={"seen": 3}))

    resources = {"store": published.store}
    result = dg.materialize([facts], partition_key="sql", instance=published.instance, resources=resources)
    (event,) = result.asset_materializations_for_node("facts")
    metadata = latest_metadata(published.instance, "facts", "sql")
    assert metadata["seen"] == 3 and Path(metadata["artifact"]).is_dir()
    assert metadata[INPUTS] == {"upstream": {"logs|_": ""}, "settings": {}, "code_version": "7"}
    assert event.tags["dagster/data_version"] == metadata[DIGEST] == latest_digest(published.instance, "facts", "sql")


def test_a_run_is_told_what_is_held(published: Published):
    published.put("facts", PYTHON, documents={"x": 1})

    @dg.asset
    def pooled(context: dg.AssetExecutionContext, store: Store) -> dg.MaterializeResult:
        inputs = Inputs.of(context, store)
        return materialized(inputs.publish("pooled", None, documents={"x": len(inputs.every("facts"))}), inputs, PAGE)

    for tags, expected in (({}, 1), ({HELD: '["facts|python"]'}, 0)):
        options = {"instance": published.instance, "resources": {"store": published.store}, "tags": tags}
        assert dg.materialize([pooled], **options).success
        assert published.inputs().artifact("pooled").document("x") == expected


def test_a_page_begins_with_the_verdict_beside_the_result_before_and_ends_with_the_digest(published: Published):
    class Fact(Record):
        schema_name, schema_version, key = "fact", 1, ("name",)
        name: str = Field(description="What is known.")
        since: int | None = Field(default=None, description="For how long.")

    def event(loss: float, text: str) -> dict[str, Any]:
        inputs = published.inputs()
        artifact = inputs.publish("facts", PYTHON, tables={"facts": (Fact, table(Fact, [Fact(name=text)]))})
        page = AssetPage(PageVerdict("good", "all is well"), KeyFigure("loss", loss, "less"), contents={"seen": 3})
        result = materialized(artifact, inputs, page)
        published.instance.report_runless_asset_event(
            dg.AssetMaterialization("facts", partition="python", metadata=result.metadata)
        )
        return dict(result.metadata)

    first, second = event(2.0, "a"), event(1.5, "b")
    assert "none before" in first["compared"] and second["compared"] == "loss 1.5, before 2 (-0.5: better)"
    assert list(second) == [
        *("verdict", "compared", "loss", "seen", "columns", "seconds", "mib"),
        *("artifact", "inputs", "digest"),
    ]
    name, since = second["columns"].columns
    assert (name.description, name.constraints.nullable, name.constraints.unique) == ("What is known.", False, True)
    assert since.constraints.nullable and not since.constraints.unique


# --- checkpoints -----------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_described_by_all_that_was_read(published: Published):
    facts = published.put("facts", PYTHON, documents={"x": 1})
    published.put("facts", documents={"x": 2})
    inputs = Inputs(published.instance, published.store.open(), run_id="run-1")
    whole = inputs.artifact("facts")
    inputs.artifact("facts", PYTHON)
    inputs.available("facts", SQL)
    origin = Origin({"seed": 1}, "b", step=3, metrics={"loss": 1.5, "worst": float("nan")}, tags=("v0",))
    about = inputs.checkpointed("python/v0", origin).about
    assert about["sources"] == {"facts": whole.digest, "facts[python]": facts.digest}  # what is absent is no source
    assert about["metrics"] == {"loss": 1.5} and about["run"] == "run-1"
    assert {name: about[name] for name in ("model", "step", "base_digest", "recipe", "tags", "parent")} == {
        "model": "python/v0",
        "step": 3,
        "base_digest": "b",
        "recipe": {"seed": 1},
        "tags": ("v0",),
        "parent": None,
    }


def test_dagster_is_told_which_checkpoints_a_result_is(published: Published, tmp_path: Path):
    ids = []
    for run in ("run-1", "run-2"):
        inputs = Inputs(published.instance, published.store.open(), run_id=run)
        kept = {"adapter": inputs.checkpointed("python/consensus", Origin({}, "b"))}
        tree = adapter_folder(tmp_path / run)
        artifact = inputs.publish("consensus_checkpoint", PYTHON, trees={"adapter": tree}, checkpoints=kept)
        ids.append(materialized(artifact, inputs, PAGE).metadata["checkpoints"].value)
    assert ids[0] == ids[1] == artifact.checkpoints and list(ids[0]) == ["adapter"]
    plain = published.put("facts", documents={"x": 1})
    assert "checkpoints" not in materialized(plain, published.inputs(), PAGE).metadata


# --- the last gate ---------------------------------------------------------------------------------------------------


def test_what_the_logs_showed_to_be_a_secret_is_neither_published_nor_shown(published: Published, tmp_path: Path):
    value, store = "kT9x2LmQ8vR4wZ7p", published.store.open()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.jsonl").write_bytes(line(envelope(f'api_key = "{value}"')) + b"\n")
    ledger = store.work_dir("e2b_logs", None, ledger_name(tmp_path / "logs"))
    bullet = table(Bullet, [a_bullet("book/b-1").model_copy(update={"content": f"begin with {value}"})])

    def publish(inputs: Inputs, **what: object) -> object:
        return inputs.publish("consolidated_playbook", PYTHON, **what)  # type: ignore[arg-type]

    def page(why: str) -> AssetPage:
        return AssetPage(PageVerdict("good", "all is well"), contents={"why": dg.MetadataValue.md(why)})

    inputs = published.inputs()
    shown = publish(inputs, documents={"x": 1})
    materialized(shown, inputs, page(f"as {value} says"))
    with ingest(tmp_path / "logs", now=NOW, ledger=ledger):
        pass
    with pytest.raises(
        InputError, match=r"bullets: content of 1 row\(s\), such as bullet_id book/b-1, holds SECRET"
    ) as no:
        publish(inputs, tables={"bullets": (Bullet, bullet)})
    assert value not in str(no.value)
    with pytest.raises(InputError, match="report: it holds SECRET"):
        publish(inputs, documents={"report": {"tasks": [{"name": value}]}})
    with pytest.raises(InputError, match="metadata: it holds SECRET"):
        materialized(shown, inputs, page(f"as\n{value} says"))
    assert store.latest_digest("consolidated_playbook", PYTHON) == shown.digest  # type: ignore[attr-defined]
