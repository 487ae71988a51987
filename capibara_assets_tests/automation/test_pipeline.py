"""`capibara run` without its command: waves, what is current, failures that stay where they are, interruption."""

import logging
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import dagster as dg
import pydantic
import pytest

from capibara_assets.assets.inputs import Inputs, latest_digest, materialized
from capibara_assets.automation.graph import Graph, Wave, is_current
from capibara_assets.automation.outcome import RunOutcome, Task
from capibara_assets.automation.pipeline import GraphRun, run_graph
from capibara_assets.automation.progress import ProgressHandler, progress
from capibara_assets.checks.results import judged
from capibara_assets.definitions import defs
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.metadata.page import AssetPage, PageVerdict
from capibara_assets.partitions import DOES_WITHOUT, domains
from capibara_assets.resources import Recipes, Store
from capibara_assets_tests.histories import copy_history

PYTHON, SQL, ML = Domain.PYTHON, Domain.SQL, Domain.ML
PAGE, REASON = AssetPage(PageVerdict("good", "well")), "check sound failed: sql leaks. What to do: mend it"
NAMES = ("logs", "other", "facts", "pooled", "final")


class Settings(pydantic.BaseModel):
    factor: int = 1


@dataclass
class World:
    """A graph of five assets: logs and other → facts per domain → pooled over the domains → final per domain.

    `contents` is what a root or a domain's facts hold, `broken` who raises, `unsound` whose blocking check fails.
    """

    folder: Path
    instance: dg.DagsterInstance
    shelf: "Shelf"
    contents: dict[str, str] = field(default_factory=dict)
    broken: dict[str, Exception | Literal["ctrl-c"]] = field(default_factory=dict)
    unsound: set[str] = field(default_factory=set)
    versions: dict[str, str] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def recipes(self) -> Recipes:
        return Recipes(folder=str(self.folder / "recipes"))

    def write_recipe(self, text: str) -> None:
        (self.folder / "recipes").mkdir(exist_ok=True)
        (self.folder / "recipes" / "dataset.yaml").write_text(text)

    @property
    def settings(self) -> dict[str, str]:
        return {"recipe:dataset": self.recipes.digest("dataset")}

    def begin(self, name: str, context: dg.AssetExecutionContext, store: Store) -> Inputs:
        where = f"{name}:{context.partition_key}" if context.has_partition_key else name
        self.ran.append(where)
        match self.broken.get(where):
            case "ctrl-c":
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(30)  # cut short by the signal
            case Exception() as error:
                raise error
        return Inputs.of(context, store)

    def definitions(self) -> dg.Definitions:
        world = self

        @dg.asset(code_version=self.versions.get("logs", "1"))
        def logs(context: dg.AssetExecutionContext, store: Store) -> dg.MaterializeResult:
            inputs = world.begin("logs", context, store)
            return materialized(inputs.publish("logs", None, documents={"x": world.contents.get("logs")}), inputs, PAGE)

        @dg.asset(code_version="1")
        def other(context: dg.AssetExecutionContext, store: Store) -> dg.MaterializeResult:
            inputs = world.begin("other", context, store)
            return materialized(
                inputs.publish("other", None, documents={"x": world.contents.get("other")}), inputs, PAGE
            )

        @dg.asset(
            partitions_def=domains,
            deps=[logs, other],
            code_version=self.versions.get("facts", "1"),
            tags={DOES_WITHOUT: "other"},
        )
        def facts(context: dg.AssetExecutionContext, store: Store, recipes: Recipes) -> dg.MaterializeResult:
            inputs = world.begin("facts", context, store)
            domain = Domain(context.partition_key)
            read = inputs.artifact("logs").document("x")
            maybe = inputs.available("other")
            document = {
                "domain": domain.value,
                "own": (read or {}).get(domain.value, "nothing"),
                "other": maybe.document("x") if maybe else None,
                "factor": inputs.recipe(recipes, "dataset", Settings).factor,
            }
            return materialized(inputs.publish("facts", domain, documents={"x": document}), inputs, PAGE)

        @dg.asset_check(asset=facts, blocking=True, partitions_def=domains)
        def sound(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
            return judged([f"{context.partition_key} leaks"][: context.partition_key in world.unsound], "", "mend it")

        @dg.asset(deps=[facts], code_version="1")
        def pooled(context: dg.AssetExecutionContext, store: Store) -> dg.MaterializeResult:
            inputs = world.begin("pooled", context, store)
            found = {d.value: a.document("x")["own"] for d, a in inputs.every("facts").items()}
            return materialized(inputs.publish("pooled", None, documents={"x": found}), inputs, PAGE)

        @dg.asset(partitions_def=domains, deps=[facts, pooled], code_version="1")
        def final(context: dg.AssetExecutionContext, store: Store) -> dg.MaterializeResult:
            inputs = world.begin("final", context, store)
            domain = Domain(context.partition_key)
            own, pool = inputs.artifact("facts", domain), inputs.artifact("pooled")
            document = [own.digest, sorted(pool.document("x"))]
            return materialized(inputs.publish("final", domain, documents={"x": document}), inputs, PAGE)

        return dg.Definitions(
            [logs, other, facts, pooled, final],
            asset_checks=[sound],
            resources={"store": self.store, "recipes": self.recipes},
            executor=dg.in_process_executor,
            loggers={"progress": progress},
        )

    @property
    def store(self) -> Store:
        return Store(root=str(self.folder / "store"), work=str(self.folder / "work"))

    def lacking(self, *where: Domain, select: tuple[str, ...]) -> dict[str, list[str]]:
        run = GraphRun(self.definitions(), self.instance, self.settings, self.store.open())
        return run.lacking(select, where)

    def run(
        self, *where: Domain, select: tuple[str, ...] = NAMES, force: bool = False, since: float | None = None
    ) -> RunOutcome:
        """Runs, and leaves in `ran` what this run started."""
        self.ran.clear()
        run = GraphRun(self.definitions(), self.instance, self.settings, self.store.open(), force, since)
        return run_graph(run, select, where, self.lines.append)

    def has_run(self, *where: Domain) -> None:
        """As its first run of these domains leaves it, which is made once for all tests."""
        kept = self.shelf.worlds.get(where)
        if kept is None:
            self.run(*where)
            kept = World(self.shelf.folder / "-".join(where), self.shelf.instance_to_keep(), self.shelf)
            copy_history(self.instance, kept.instance)
            shutil.copytree(self.folder, kept.folder)
            self.shelf.worlds[where] = kept
        else:
            copy_history(kept.instance, self.instance)
            shutil.copytree(kept.folder, self.folder, dirs_exist_ok=True)

    def current(self, name: str, partition: Domain | None = None) -> bool:
        return is_current(Graph.of(self.definitions()), self.instance, name, partition, self.settings)

    def document(self, name: str, partition: Domain | None = None) -> object:
        return Inputs(self.instance, self.store.open()).artifact(name, partition).document("x")


@dataclass
class Shelf:
    """Worlds of which some domains have been run, to be copied."""

    folder: Path
    open: ExitStack
    worlds: dict[tuple[Domain, ...], World] = field(default_factory=dict)

    def instance_to_keep(self) -> dg.DagsterInstance:
        return self.open.enter_context(dg.DagsterInstance.ephemeral())


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    with ExitStack() as stack:
        yield Shelf(tmp_path_factory.mktemp("shelf"), stack)


@pytest.fixture
def world(instance: dg.DagsterInstance, shelf: Shelf, tmp_path: Path) -> World:
    instance.wipe()
    made = World(tmp_path, instance, shelf, contents={"logs": {"python": "p", "sql": "s"}, "other": "o"})
    made.write_recipe("factor: 2\n")
    return made


# --- waves -----------------------------------------------------------------------------------------------------------


def test_waves_of_the_real_graph():
    waves = list(Graph.of(defs).waves([*Graph.of(defs).parents]))
    assert [(set(wave.assets), wave.partitioned) for wave in waves] == [
        ({"ace_playbooks", "e2b_logs"}, False),
        ({"e2b_executions", "consolidated_playbook", "e2b_patterns"}, True),
        ({"example_groups"}, False),
        ({"moe_dataset", "lora_config", "tpu_config"}, True),
        ({"routing_dataset"}, False),
        ({"trained_adapters", "consensus_checkpoint"}, True),  # a voter may read all domains' datasets
        ({"merged_checkpoint", "moe_checkpoint", "expert_router"}, False),
        ({"evaluation"}, True),
        ({"promoted_model"}, False),
    ]


@pytest.mark.parametrize("left_out", [(), ("example_groups",), ("merged_checkpoint", "moe_dataset"), ("e2b_logs",)])
def test_parents_come_first_and_nothing_is_lost(left_out: tuple[str, ...]):
    graph = Graph.of(defs)
    selection = [name for name in graph.parents if name not in left_out]
    order = [name for wave in graph.waves(selection) for name in wave.assets]
    assert sorted(order) == sorted(selection)
    for position, name in enumerate(order):
        assert graph.parents[name] & set(selection) <= set(order[:position]), name


def test_a_selection_of_one_is_one_wave():
    graph = Graph.of(defs)
    assert list(graph.waves(["moe_dataset"])) == [Wave(("moe_dataset",), True)]
    assert list(graph.waves([])) == []


def test_tasks_wait_for_what_they_read_and_for_nothing_else():
    graph = Graph.of(defs)
    tasks = graph.tasks([*graph.parents], (PYTHON, SQL))
    named = {(name, task.partition): task for task in tasks for name in task.assets}

    def waits_for(name: str, partition: Domain | None, other: str, where: Domain | None) -> bool:
        return tasks.index(named[other, where]) in named[name, partition].after

    assert waits_for("moe_dataset", PYTHON, "example_groups", None)
    assert not waits_for("consensus_checkpoint", SQL, "consensus_checkpoint", PYTHON)
    assert waits_for("trained_adapters", PYTHON, "moe_dataset", SQL), "its voters may train on all domains"
    assert waits_for("evaluation", PYTHON, "consensus_checkpoint", SQL), "it measures all experts"
    assert waits_for("merged_checkpoint", None, "consensus_checkpoint", SQL)
    assert not waits_for("evaluation", PYTHON, "moe_checkpoint", None), "it does not read the mixture"
    assert all(at > max(task.after, default=-1) for at, task in enumerate(tasks)), "upstream first"
    tasks = graph.tasks([*graph.parents], (PYTHON, SQL), ["trained_adapters"])
    named = {(name, task.partition): task for task in tasks for name in task.assets}
    assert waits_for("trained_adapters", PYTHON, "moe_dataset", PYTHON)
    assert not waits_for("trained_adapters", PYTHON, "moe_dataset", SQL), "no voter does"


def test_what_reads_all_partitions_of_a_parent_is_in_a_later_wave():
    graph = Graph.of(defs)
    selection = ["consensus_checkpoint", "evaluation"]
    assert list(graph.waves(selection)) == [Wave(("consensus_checkpoint",), True), Wave(("evaluation",), True)]
    assert graph.tasks(selection, (SQL,)) == [
        Task(("consensus_checkpoint",), SQL),
        Task(("evaluation",), SQL, frozenset({0})),
    ]


def chain(**parents: str) -> Graph:
    names = {name: frozenset(text.split()) for name, text in parents.items()}
    return Graph(names, dict.fromkeys(names, True), dict.fromkeys(names, "1"))


def test_joined_takes_what_waits_for_the_batch_alone():
    graph = chain(a="", b="a", c="b", d="a x", x="", e="d")
    pending = ["a", "b", "c", "d", "x", "e"]
    everything = set(pending)
    assert graph.joined({"a"}, pending, everything) == {"a", "b", "c"}  # d also waits for x
    assert graph.joined({"a", "x"}, pending, everything) == everything
    assert graph.joined({"a"}, pending, everything - {"b"}) == {"a"}  # b may turn out current: c waits for it
    assert graph.joined({"a"}, ["a", "b", "c", "d", "e"], everything) == {"a", "b", "c", "d", "e"}  # x is done
    assert graph.joined(set(), pending, everything) == set()


# --- what is current -------------------------------------------------------------------------------------------------


def test_first_everything_then_only_the_roots(world: World):
    first = world.run(PYTHON, SQL)
    assert not first.failures and not first.current
    assert world.ran[:2] == ["logs", "other"] and world.ran.count("pooled") == 1
    assert sorted(world.ran[2:]) == ["facts:python", "facts:sql", "final:python", "final:sql", "pooled"]
    assert first.domain_seconds(PYTHON) > 0 and first.domain_seconds(ML) == 0
    again = world.run(PYTHON, SQL)
    assert world.ran == ["logs", "other"] and not again.failures
    assert sorted(again.current) == [
        ("facts", "python"),
        ("facts", "sql"),
        ("final", "python"),
        ("final", "sql"),
        ("pooled", "_"),
    ]


def test_force_runs_all_of_it_and_changes_nothing(world: World):
    world.has_run(PYTHON)
    before = {name: latest_digest(world.instance, name, "python") for name in ("facts", "final")}
    outcome = world.run(PYTHON, force=True)
    assert sorted(world.ran) == ["facts:python", "final:python", "logs", "other", "pooled"] and not outcome.current
    assert {name: latest_digest(world.instance, name, "python") for name in before} == before


def test_new_content_runs_what_depends_on_it(world: World):
    world.has_run(PYTHON, SQL)
    world.contents["logs"] = {"python": "p", "sql": "s2"}
    world.run(PYTHON, SQL)
    assert world.document("pooled") == {"python": "p", "sql": "s2"}
    assert {"facts:sql", "pooled", "final:sql"} <= set(world.ran)


def test_what_comes_out_the_same_wakes_nothing(world: World):
    world.has_run(PYTHON, SQL)
    world.contents["logs"] = {"python": "p", "sql": "s", "ml": "m"}
    world.run(PYTHON, SQL)  # both domains read the new ledger; neither finds anything new in it
    assert set(world.ran) == {"logs", "other", "facts:python", "facts:sql"}


def test_roots_and_what_was_never_made_are_not_current(world: World):
    assert not world.current("facts", PYTHON)
    world.has_run(PYTHON)
    assert not world.current("logs") and not world.current("facts", SQL)
    assert world.current("facts", PYTHON) and world.current("pooled") and world.current("final", PYTHON)


def test_an_upstream_that_was_absent_and_arrives(world: World):
    world.run(PYTHON, select=("logs", "facts"))
    assert world.current("facts", PYTHON) and world.document("facts", PYTHON)["other"] is None
    world.run(PYTHON, select=("other",))
    assert not world.current("facts", PYTHON)
    world.run(PYTHON, select=("facts",))
    assert world.current("facts", PYTHON) and world.document("facts", PYTHON)["other"] == "o"


def test_a_domain_that_arrives_joins_the_pool(world: World):
    world.has_run(PYTHON)
    assert world.current("pooled")
    world.run(SQL, select=("facts",))
    assert not world.current("pooled")
    world.run(select=("pooled",))
    assert world.document("pooled") == {"python": "p", "sql": "s"}


def test_a_changed_recipe(world: World):
    world.has_run(PYTHON)
    world.write_recipe("# a comment changes nothing\nfactor:   2\n")
    assert world.current("facts", PYTHON)
    nothing_known: dict[str, str] = {}
    assert not is_current(Graph.of(world.definitions()), world.instance, "facts", PYTHON, nothing_known)
    world.write_recipe("factor: 3\n")
    assert not world.current("facts", PYTHON) and world.current("pooled")
    world.run(PYTHON)
    assert world.document("facts", PYTHON)["factor"] == 3
    assert "final:python" in world.ran and world.current("facts", PYTHON)


def test_a_changed_code_version(world: World):
    world.has_run(PYTHON, SQL)
    world.versions["facts"] = "2"
    assert not world.current("facts", PYTHON) and not world.current("facts", SQL) and world.current("pooled")
    world.run(PYTHON, SQL)
    # made again, with the same result: what depends on it stays
    assert set(world.ran) == {"logs", "other", "facts:python", "facts:sql"}
    assert world.current("facts", PYTHON)


def test_a_materialization_by_hand_without_a_record_is_not_current(world: World):
    world.has_run(PYTHON)
    world.instance.report_runless_asset_event(dg.AssetMaterialization("pooled"))
    assert not world.current("pooled")


# --- failures --------------------------------------------------------------------------------------------------------


def test_a_domain_that_fails_does_not_stop_the_others(world: World):
    world.broken["facts:sql"] = InputError("the sql logs are upside down: turn them")
    outcome = world.run(SQL, PYTHON)
    assert outcome.failures["facts", "sql"] == "the sql logs are upside down: turn them"
    assert all(where == "sql" for _, where in outcome.failures)
    assert world.document("pooled") == {"python": "p"}
    assert ("final", "python") in outcome.seconds and ("final", "sql") not in outcome.seconds
    assert any("FAILED" in line and "upside down" in line for line in world.lines)

    world.broken.clear()
    assert not world.run(SQL, PYTHON).failures
    assert world.document("pooled") == {"python": "p", "sql": "s"}
    # what was well and reads none of the mended domain was left alone
    assert "facts:python" not in world.ran


def test_a_failed_root_is_reported_and_what_was_there_before_serves(world: World):
    world.has_run(PYTHON)
    world.broken["logs"] = InputError("no such folder")
    outcome = world.run(PYTHON)
    assert list(outcome.failures) == [("logs", "_")] and "no such folder" in outcome.failures["logs", "_"]
    assert ("facts", "python") in outcome.current


def test_a_backfill_makes_its_domains_again_once_and_what_failed_alone_the_next_time(world: World):
    world.has_run(PYTHON, SQL)
    since = time.time()
    world.broken["facts:sql"] = InputError("no disk")
    outcome = world.run(PYTHON, SQL, since=since)
    assert world.ran == ["logs", "other", "facts:python", "facts:sql", "final:python", "final:sql"]
    assert outcome.failures == {("facts", "sql"): "no disk"}
    world.broken.clear()
    assert not world.run(PYTHON, SQL, since=since).failures
    assert world.ran == ["logs", "other", "facts:sql"]
    world.run(PYTHON, SQL, since=since)
    assert world.ran == ["logs", "other"], "it is finished"


def test_what_a_run_made_has_a_place_in_its_time(world: World):
    before = time.time()
    outcome = world.run(PYTHON)
    assert set(outcome.spans) == set(outcome.seconds) and outcome.spans
    assert all(before <= begun <= ended <= time.time() for begun, ended in outcome.spans.values())
    begun = {step: span[0] for step, span in outcome.spans.items()}
    assert begun["logs", "_"] < begun["facts", "python"] < begun["final", "python"]
    assert any("parts, " in line for line in world.lines)


def test_a_failing_blocking_check_stops_its_domain_in_this_run_and_the_next(world: World):
    world.unsound.add("sql")
    for _ in range(2):
        outcome = world.run(PYTHON, SQL)
        assert {where for _, where in outcome.failures} == {"sql"}
        assert outcome.failures["facts_sound", "sql"] == REASON
        assert latest_digest(world.instance, "final", "sql") is None
        assert world.document("pooled") == {"python": "p"}, "what failed its check flowed on"
        assert latest_digest(world.instance, "final", "python")
    world.unsound.clear()
    assert not world.run(PYTHON, SQL).failures
    assert world.document("pooled") == {"python": "p", "sql": "s"} and latest_digest(world.instance, "final", "sql")


def test_a_result_that_turns_bad_is_not_read_where_its_good_predecessor_was(world: World):
    world.has_run(PYTHON, SQL)
    world.contents["logs"] = {"python": "p", "sql": "leaks"}
    world.unsound.add("sql")
    assert world.run(PYTHON, SQL).failures
    assert "leaks" not in world.document("pooled").values()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.extended)])
@pytest.mark.parametrize(
    "at",
    [
        "STEP_SUCCESS",
        "PIPELINE_SUCCESS",
        *(pytest.param(at, marks=pytest.mark.extended) for at in ("PIPELINE_START", "STEP_START", "STEP_OUTPUT")),
    ],
)
def test_an_interruption_between_two_steps_ends_the_run_too(
    world: World, monkeypatch: pytest.MonkeyPatch, at: str, number: int
) -> None:
    sent = list[str]()

    def emit(_: ProgressHandler, record: logging.LogRecord) -> None:
        event = record.__dict__.get("dagster_meta", {}).get("dagster_event")
        if event is not None and event.event_type_value == at and not sent:
            sent.append(at)
            os.kill(os.getpid(), number)

    monkeypatch.setattr(ProgressHandler, "emit", emit)
    with pytest.raises(KeyboardInterrupt):
        world.run(PYTHON, SQL)
    assert sent and "facts:sql" not in world.ran
    assert not world.run(PYTHON, SQL).failures


@pytest.mark.parametrize(
    ("lost", "made"),
    [
        ("facts/sql", ["logs", "other", "facts:sql"]),
        pytest.param("pooled", ["logs", "other", "pooled"], marks=pytest.mark.extended),
        pytest.param("final/python", ["logs", "other", "final:python"], marks=pytest.mark.extended),
    ],
)
def test_a_result_that_the_store_has_lost_is_made_again_and_nothing_else(world: World, lost: str, made: list[str]):
    world.has_run(PYTHON, SQL)
    name, _, partition = lost.partition("/")
    shutil.rmtree(Path(world.store.root) / "artifacts" / name / (partition or "_"))
    assert not world.run(PYTHON, SQL).failures
    assert world.ran == made


def test_selected_assets_that_lack_inputs_are_known_before_a_run(world: World):
    assert world.lacking(PYTHON, SQL, select=NAMES) == {} == world.lacking(PYTHON, select=("logs", "other"))
    assert world.lacking(PYTHON, select=("facts", "final")) == {"facts": ["logs"], "final": ["pooled"]}
    assert world.lacking(PYTHON, select=("pooled",)) == {"pooled": ["facts"]}
    world.has_run(PYTHON)
    assert world.lacking(PYTHON, SQL, select=("final",)) == {}, "what one domain lacks does not stop the others"
    assert world.lacking(SQL, select=("final",)) == {"final": ["facts"]}
    shutil.rmtree(Path(world.store.root) / "artifacts" / "logs")
    assert world.lacking(PYTHON, select=("facts",)) == {"facts": ["logs"]}, "a result that the store has lost is none"


def test_what_dagster_says_of_steps_below_a_failed_one_is_not_printed(world: World, capsys: pytest.CaptureFixture[str]):
    world.broken["facts:sql"] = InputError("no disk")
    world.run(SQL)
    printed = capsys.readouterr().out
    assert "logs in " in printed and "Dependencies" not in printed


def test_ctrl_c_ends_the_run_and_keeps_what_was_finished(world: World):
    world.broken["facts:sql"] = "ctrl-c"
    with pytest.raises(KeyboardInterrupt):
        world.run(PYTHON, SQL)
    assert world.ran == ["logs", "other", "facts:python", "facts:sql"]
    world.broken.clear()
    assert not world.run(PYTHON, SQL).failures
    assert "facts:python" not in world.ran and "facts:sql" in world.ran
