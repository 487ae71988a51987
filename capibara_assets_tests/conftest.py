"""Fixtures shared by every test: where real data and the shipped base model lie."""

import gc
import gzip
import hashlib
import io
import json
import logging
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import accelerate.utils.other
import alembic.config
import alembic.script
import hypothesis
import pytest
import sqlalchemy
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage

from capibara_assets.deployment.locations import resources_root
from capibara_assets.processes.ray_map import RayCluster, connected
from capibara_assets_tests.durations import pytest_addoption, pytest_configure
from capibara_assets_tests.home import MadeHome, made_home

if TYPE_CHECKING:
    import dagster as dg

    from capibara_assets_tests.published import Published

__all__ = ["pytest_addoption", "pytest_configure"]  # hooks

REPOSITORY = Path(__file__).resolve().parent.parent

# As the command line does, and before anything imports torch: two workers whose threads spin while they wait take each
# other's cores, and tests that compute cost several times their work. Processes that tests start inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Two workers share two cores already, and a process that works on a domain imports all anew. Tests of it ask for more.
os.environ.setdefault("CAPIBARA_PARALLEL", "1")
if "PYTEST_XDIST_WORKER" in os.environ:
    # What must not depend on the number of threads is tested with a number of its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# What XLA compiles here runs for milliseconds: compiling it well is most of the time of its tests.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

# Two workers and the hundreds of processes that tests start import the same thousand modules: compiled once, not each
# time, also where the environment says otherwise. What is compiled lies in ignored folders.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Thousands of small durable writes: on a disk a test waits for each, in memory for none. A test's folder goes with it
# unless it failed; those that stay, and one large model at a time, take some gigabytes.
_MEMORY = Path("/dev/shm")
if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 8e9:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# Saving a model with Transformers asks Accelerate whether it is DeepSpeed's, which imports that, and with it MLflow:
# three seconds of each worker. Whoever tests DeepSpeed imports it.
accelerate.utils.other.is_deepspeed_available = lambda: False

# Dagster stamps the database of each run with the newest migration, for which Alembic executes all of them: a third of
# what small graphs cost. They are files of the library, the same for each database.
_read_migrations = alembic.script.ScriptDirectory.from_config
_migrations: dict[str | None, alembic.script.ScriptDirectory] = {}


def _migrations_of(config: alembic.config.Config) -> alembic.script.ScriptDirectory:
    location = config.get_main_option("script_location")
    if location not in _migrations:
        _migrations[location] = _read_migrations(config)
    return _migrations[location]


alembic.script.ScriptDirectory.from_config = _migrations_of  # type: ignore[method-assign]

# Dagster makes an SQLAlchemy engine for each statement, which compiles it anew. One engine for a database, without a
# pool as Dagster asks, opens a connection each time all the same.
_engines: dict[str, sqlalchemy.Engine] = {}


def _engine_of(url: str, **options: Any) -> sqlalchemy.Engine:
    if url not in _engines:
        _engines[url] = sqlalchemy.create_engine(url, **options)
    return _engines[url]


for storage in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
    storage.create_engine = _engine_of  # type: ignore[attr-defined]


# A run makes hundreds of commits, each of which waits for the disk; only a loss of power would tell. What writes with
# SQLite itself (caches, ledgers), and processes that a test starts, sync as users' do.
@sqlalchemy.event.listens_for(sqlalchemy.Engine, "connect")
def _without_sync(connection: object, _: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


# Until all modules are imported nothing is garbage: looking for it is a fifth of the time that collecting tests takes.
gc.disable()

# The suite tries the same examples each time, so that red means the change at hand; HYPOTHESIS_PROFILE=explore tries
# others. Twenty of each find what breaks at once; `extended`, in `make test-all`, has Hypothesis's own hundred. No
# deadlines: machines differ.
hypothesis.settings.register_profile("suite", deadline=None, derandomize=True, max_examples=20)
hypothesis.settings.register_profile("extended", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


FIRST = (
    "test_whole_graph.py",
    "executions/replay/test_replay.py",
    "test_extending.py",
    "training/parallel/test_backends.py",
    "modeling/jax/test_jax_step.py",
    "consensus/rounds/test_rounds.py",
    "cluster/test_remote.py",
    "evaluation/diagnosis/test_diagnose.py",
    "evaluation/grading/test_grade.py",
    "training/supervisor/test_run.py",
    "cli/dataset/test_forget.py",
    "test_forget_canary.py",
    "reliability/test_automation.py",
    "ui/test_browser.py",
)
"""The first worker makes the home that several files share, the others run what needs none until it is there; then come
the files of a few tests that take longest, or one worker would be left alone with them at the end."""


LONG_IN_ALL = (
    "reliability/test_system_calls.py",
    "reliability/test_random_walk.py",
    "benchmarks/test_keys.py",
    "training/test_kills.py",
    "cluster/test_demo.py",
    "reliability/test_vote_calls.py",
    "executions/secrets/test_prefilter.py",
    "benchmarks/training/test_gpu.py",
    "cluster/test_remote_faults.py",
)
"""In `make test-all` these take six to eighteen minutes each; one worker was left alone with the last for twelve."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """FIRST comes first, then LONG_IN_ALL in `make test-all`, the others as they were, unless an order was drawn.

    `--no-loadscope-reorder` keeps to it.
    """
    if config.pluginmanager.hasplugin("randomly"):
        return
    first = FIRST + (LONG_IN_ALL if os.environ.get("HYPOTHESIS_PROFILE") == "extended" else ())
    places = {str(Path(__file__).parent / name): place for place, name in enumerate(first)}
    items.sort(key=lambda item: places.get(str(item.path), len(places)))


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector looks at what tests make, as rarely as in our processes."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """What is logged during the test."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    logging.getLogger().addHandler(handler)
    yield text
    logging.getLogger().removeHandler(handler)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Keep absl from closing pytest's streams.

    absl, which Orbax brings, logs to the stderr it found when it was imported, which was pytest's, and closes that when
    logging is set up while another one is in place, as runs in this process do: all later tests would fail.
    """
    if (absl := sys.modules.get("absl.logging")) is not None:
        absl.get_absl_handler().python_handler.stream = sys.__stderr__


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[RayCluster]:
    """A Ray cluster of two workers on this machine, for one file's tests: starting it takes ten seconds."""
    pytest.importorskip("ray", reason="the extra ray is not installed")
    cluster = RayCluster(workers=2)
    with connected(cluster):
        yield cluster


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of real experience and known answers; the test is skipped where it is absent."""
    folder = Path(os.environ.get("CAPIBARA_SHARED", REPOSITORY.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no shared data in {folder}: set CAPIBARA_SHARED to run this test")
    return folder


@pytest.fixture(scope="session")
def shared_data(shared: Path) -> Path:
    return shared / "data"


@pytest.fixture(scope="session")
def nano() -> Path:
    """The base model that ships."""
    return resources_root() / "base_models" / "capibara-nano"


def sandboxes_of(folder: Path, per_domain: int) -> list[str]:
    """Lines of whole sandboxes from an experience folder, at most `per_domain` sandboxes of each agent."""
    sessions: dict[str, list[str]] = {}
    kind: dict[str, str] = {}
    for path in sorted((folder / "e2b_logs").glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            for line in lines:
                record = json.loads(line)
                sessions.setdefault(record["sandbox_id"], []).append(line)
                kind.setdefault(record["sandbox_id"], str(record.get("agent_id")))
    taken: dict[str, int] = {}
    chosen = []
    for sandbox in sorted(sessions, key=lambda name: hashlib.sha256(name.encode()).hexdigest()):
        if taken.get(kind[sandbox], 0) < per_domain:
            taken[kind[sandbox]] = taken.get(kind[sandbox], 0) + 1
            chosen += sessions[sandbox]
    return chosen


@pytest.fixture(scope="session")
def small_experience(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some sandboxes of every agent of the shipped experience, and its playbooks: small enough for whole graphs."""
    folder = tmp_path_factory.mktemp("experience")
    shipped = resources_root() / "experience"
    shutil.copytree(shipped / "playbooks", folder / "playbooks")
    (folder / "e2b_logs").mkdir()
    (folder / "e2b_logs" / "sessions.jsonl").write_text("".join(sandboxes_of(shipped, per_domain=30)))
    return folder


@pytest.fixture(scope="session")
def pristine_home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MadeHome:
    """A home whose whole graph is materialized, to be copied and never opened: SQLite writes beside what it reads.

    It is kept in pytest's cache for as long as nothing changes that it is made of; `--cache-clear` has it made again.
    """
    if (cache := getattr(request.config, "cache", None)) is not None:
        return made_home(cache.mkdir("made-home"))
    base = tmp_path_factory.getbasetemp()  # of this worker; its parent is the session's
    return made_home((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "made-home")


@pytest.fixture(scope="session")
def shared_home(pristine_home: MadeHome, tmp_path_factory: pytest.TempPathFactory) -> MadeHome:
    """A copy of the materialized home for all tests of a worker that change nothing in it."""
    return pristine_home.copy(tmp_path_factory.mktemp("shared") / "made")


@pytest.fixture
def own_home(pristine_home: MadeHome, tmp_path: Path) -> MadeHome:
    """A copy of the materialized home for one test."""
    return pristine_home.copy(tmp_path / "made")


@pytest.fixture
def made(own_home: MadeHome, monkeypatch: pytest.MonkeyPatch) -> MadeHome:
    """`own_home`, as the deployment that this process's environment names."""
    for name, value in own_home.environment.items():
        monkeypatch.setenv(name, value)
    return own_home


@pytest.fixture(scope="module")
def instance() -> Iterator["dg.DagsterInstance"]:
    """A Dagster instance in memory for all tests of a module; `published` wipes it, as making one takes longer."""
    import dagster as dg

    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def published(instance: "dg.DagsterInstance", tmp_path: Path) -> "Published":
    """An empty store, and the instance without a history."""
    from capibara_assets_tests.published import Published

    return Published.afresh(instance, tmp_path)
