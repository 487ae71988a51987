"""A deployment as a file: `resources/deployments/NAME.yaml`, or one of your own; CAPIBARA_DEPLOYMENT chooses it."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from capibara_assets.deployment.declarations import Declared, read_declared
from capibara_assets.deployment.locations import resources_root
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError

DEFAULT_DEPLOYMENT = "local"
TPU = "tpu-"  # with which the names of TPU slices begin
LEAST_DAYS, MOST_DAYS = 0.01, 3650.0  # a quarter of an hour, ten years: limits of what may be too old
UNSCHEDULED_DAYS = 35.0  # over a month


_PLACE = re.compile(r"(?:gs|gcs)://[A-Za-z0-9][A-Za-z0-9._-]*(?:/.*)?|(?:file|memory)://.*", re.DOTALL)


def _a_place(text: str | None) -> str | None:
    """A folder, or an address of a bucket with its name; `memory` is fsspec's, which lasts as long as its process."""
    if text is not None and "://" in text and not _PLACE.fullmatch(text):
        raise ValueError(
            f"{text} is neither a folder nor gs://bucket/prefix, the only places that are read and written"
        )
    return text


Place = Annotated[str | None, AfterValidator(_a_place)]


class Storage(Declared):
    """Places of a deployment; relative ones are below the working directory."""

    home: str = Field(default=".capibara", min_length=1, description="state: store, work, Dagster's history")
    store: Place = Field(default=None, description="artifacts: a folder or gs://bucket/prefix; null: HOME/store")
    work: str | None = Field(default=None, description="local folder of resume points and caches; null: HOME/work")
    history: Literal["postgres"] | None = Field(
        default=None, description="Dagster's runs and events; null: as dagster.yaml says, SQLite where there is none"
    )
    compute_logs: Annotated[str | None, Field(pattern="^gs://"), AfterValidator(_a_place)] = Field(
        default=None,
        description="gs://bucket/prefix for what steps print; null: as dagster.yaml says",
    )


class Experience(Declared):
    """Locations of agents' logs and playbooks, and additional redaction rules."""

    folder: Place = Field(default=None, description="a folder or gs://bucket/prefix; null: what ships")
    redact_also: tuple[Literal["email", "ip"], ...] = ()


class BaseModelChoice(Declared):
    """The model that adapters are trained for."""

    base: str | None = Field(default=None, description="folder, Hub id@revision, 20b or 120b; null: capibara-nano")
    fetch_gib: float = Field(
        default=0, ge=0, allow_inf_nan=False, description="largest model that is fetched from the Hub"
    )


class RecipeChoice(Declared):
    """The recipes of all stages."""

    profile: str = Field(default="demo", min_length=1)
    folder: str = Field(default="", description="empty: those that ship")


class DataChoice(Declared):
    """Engine that reads logs and executes code again; all settings but `engine` are for Ray."""

    engine: Literal["local", "ray"] = "local"
    address: str = Field(
        default="local", min_length=1, description="local: processes of this machine; auto, HOST:PORT or ray://…"
    )
    workers: int | None = Field(default=None, ge=1, description="tasks at a time; null: the processors of this machine")
    memory_gib: float | None = Field(default=None, gt=0, description="that Ray reserves for each worker")
    from_mib: float = Field(default=24, ge=0, description="of logs, from which workers read; less is read here")
    from_texts: int = Field(default=500_000, ge=1, description="of code, from which workers search for near-duplicates")
    from_sessions: int = Field(default=64, ge=1, description="of code, from which workers execute them again")


Quantity = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|[kMGTP]i?)?$")]


class StepResources(Declared):
    """Processors and memory of a step's pod, in Kubernetes' quantities (`500m`, `4`; `16Gi`)."""

    cpu: Quantity = Field(description="requested")
    memory: Quantity = Field(description="requested, and the limit")


class LauncherChoice(Declared):
    """Where steps and trainings run; all settings but `mode` and `grace_seconds` are for pods."""

    mode: Literal["local", "k8s"] = "local"
    executor: Literal["in_process", "k8s"] = Field(
        default="in_process", description="steps of a run of Dagster: in the run's process, or in a pod each"
    )
    steps: dict[str, StepResources] = Field(default={}, description="executor k8s: step -> what its pod gets")
    slices: Literal["jobset", "queued", "vertex"] = Field(
        default="jobset", description="plans of TPU slices: pods, TPU VMs by queued resources, or Vertex AI"
    )
    grace_seconds: float = Field(default=20, gt=0, description="between the request to stop and the kill")
    image: str = ""
    gpu_image: str = Field(default="", description="of pods on GPUs; empty: `image`")
    tpu_image: str = Field(default="", description="of pods on TPUs; empty: `image`")
    namespace: str = Field(default="", description="empty: the current one")
    service_account: str = ""
    secrets: tuple[str, ...] = Field(default=(), description="names of secrets whose keys become variables")
    volume_claim: str = ""
    volume_path: str = Field(default="", description="where the claim is mounted, here and in the pods alike")
    priority_class: str = ""
    start_minutes: float = Field(default=30, gt=0, description="how long a pod may wait for a node")

    @model_validator(mode="after")
    def _pods_for_steps(self) -> "LauncherChoice":
        if self.steps and self.executor != "k8s":
            raise ValueError("steps: only pods have resources of their own; set executor to k8s, or leave steps out")
        return self


def _named(value: Any) -> Any:
    return {"target": value} if isinstance(value, str) else value


class Choice(Declared):
    """A hardware target, and whether its nodes are preemptible (spot)."""

    target: str = Field(min_length=1)
    capacity: Literal["on-demand", "spot"] = "on-demand"
    usd_per_hour: float | None = Field(default=None, ge=0, description="your contract's; null: the target's own price")


class DomainHardware(Declared):
    """Hardware of a domain in order of preference, and the budget of its training."""

    targets: tuple[Annotated[Choice, BeforeValidator(_named)], ...] = Field(min_length=1)
    max_usd: float | None = Field(default=None, gt=0)
    max_hours: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _slices_stand_alone(self) -> "DomainHardware":
        slices = {one.target for one in self.targets if one.target.startswith(TPU)}
        if slices and len({one.target for one in self.targets}) > 1:
            raise ValueError(
                f"targets: {', '.join(sorted(slices))} cannot stand beside others: what JAX trained there, PyTorch does"
                " not go on with, and each slice has a plan of its own"
            )
        return self

    @property
    def first(self) -> str:
        """Name of the preferred target."""
        return self.targets[0].target

    def on(self, target: str) -> "DomainHardware":
        """The same budget on one target, which another one decided."""
        return self.model_copy(update={"targets": (Choice(target=target),)})


class TpuChoice(Declared):
    """The slices that `tpu_config` plans for; null: the training target, if it is a slice."""

    default: str | None = None
    domains: dict[Domain, str] = Field(default={})


class HardwareSection(Declared):
    """Hardware of each domain."""

    default: DomainHardware = DomainHardware(targets=(Choice(target="cpu-laptop"),))
    domains: dict[Domain, DomainHardware] = Field(default={}, description="domains with hardware of their own")
    tpu: TpuChoice = TpuChoice()


class GoogleCloudChoice(Declared):
    """Project and zone of gs:// stores and of the launch files of TPU plans."""

    project: str = ""
    zone: str = ""
    service_account: str = Field(default="", description="e-mail of TPU VMs and custom jobs; empty: the project's")


class Limits(Declared):
    """Resource limits of a deployment."""

    domains_at_once: int | None = Field(default=None, ge=1, description="null: by cores and memory")
    training_hours: float | None = Field(default=None, gt=0, description="a training is ended after so long")


class Retraining(Declared):
    """Conditions for training a domain again automatically; null: none."""

    new_examples: int | None = Field(
        default=None, ge=1, description="train examples that were not in the dataset it was trained on"
    )
    cool_down_hours: float | None = Field(default=None, gt=0, description="after the end of its last training")


class DayBudget(Declared):
    """Limits on the trainings of 24 hours that the automation starts; null: no limit."""

    trainings: int | None = Field(default=None, ge=1)
    hours: float | None = Field(default=None, gt=0)
    usd: float | None = Field(default=None, gt=0, description="at the price of the dearest target of each domain")


class Freshness(Declared):
    """Age from which Dagster and `capibara doctor` warn of a result, or call it too old."""

    warn_days: float | None = Field(default=None, ge=LEAST_DAYS, le=MOST_DAYS)
    fail_days: float | None = Field(default=None, ge=LEAST_DAYS, le=MOST_DAYS)

    @model_validator(mode="after")
    def _in_order(self) -> "Freshness":
        if self.warn_days is None and self.fail_days is None:
            raise ValueError("give warn_days, fail_days or both; null in place of the two means: never too old")
        if self.warn_days and self.fail_days and self.warn_days >= self.fail_days:
            raise ValueError(f"warn_days is {self.warn_days:g}, give fewer than fail_days, {self.fail_days:g}")
        return self


class FreshnessChoice(Declared):
    """How old results may grow; null: as old as they like."""

    # Everything else is as good as its inputs, however old it is, and the automation and `check_currency` look after
    # those. An evaluation alone is made again of the same inputs: sandboxes, libraries and graders are others by then.
    # It is never failed by default, and no monthly schedule comes near the warning: a home that lies unused for
    # weeks is in order, and nothing in it is red.
    evaluation: Freshness | None = Field(
        default=Freshness(warn_days=UNSCHEDULED_DAYS),
        description="judged; with evaluate_again and without days of its own: warn after two turns",
    )
    # These two are made when something new arrives, so their age says something only where that happens all the time
    promoted_model: Freshness | None = Field(default=None, description="served")
    e2b_executions: Freshness | None = Field(default=None, description="read by the sensor's runs, where logs arrive")


class AutomationChoice(Declared):
    """When sensors and schedules start runs, and how old results may grow; manual runs are not affected."""

    default: Retraining = Retraining()
    domains: dict[Domain, Retraining] = Field(default={}, description="domains with rules of their own")
    per_day: DayBudget = DayBudget()
    evaluate_again: str | None = Field(
        default=None, description="cron expression (UTC): evaluate the chosen domains again; null: never by itself"
    )
    freshness: FreshnessChoice = FreshnessChoice()

    def of(self, domain: Domain) -> Retraining:
        """The rules of a domain."""
        return self.domains.get(domain, self.default)

    @property
    def limited(self) -> bool:
        """Whether there is any rule or budget."""
        return any(one.model_dump(exclude_none=True) for one in (self.default, self.per_day, *self.domains.values()))

    @property
    def longest_cool_down(self) -> float:
        """Of all domains, in seconds."""
        return 3600 * max(one.cool_down_hours or 0.0 for one in (self.default, *self.domains.values()))


NoticeKind = Literal["failed_checks", "promotions", "rejected_voters", "budget"]
WebhookShape = Literal["json", "slack"]


class Webhook(Declared):
    """One webhook; its address is a secret, so the file names a variable that holds it."""

    url_variable: str = Field(pattern="^[A-Z][A-Z0-9_]*$", description="name of the variable with its address")
    shape: WebhookShape = "json"
    kinds: tuple[NoticeKind, ...] = ("failed_checks", "promotions", "rejected_voters", "budget")


class NotificationChoice(Declared):
    """Recipients of notifications."""

    webhooks: tuple[Webhook, ...] = ()

    @field_validator("webhooks")
    @classmethod
    def _once_each(cls, webhooks: tuple[Webhook, ...]) -> tuple[Webhook, ...]:
        names = [one.url_variable for one in webhooks]
        if len({*names}) < len(names):
            raise ValueError("two webhooks have the same url_variable: give each its own, or one with all its kinds")
        return webhooks


class DeploymentFile(Declared):
    """All that differs between a laptop and a cluster, except credentials."""

    storage: Storage = Storage()
    experience: Experience = Experience()
    model: BaseModelChoice = BaseModelChoice()
    recipes: RecipeChoice = RecipeChoice()
    data: DataChoice = DataChoice()
    launcher: LauncherChoice = LauncherChoice()
    hardware: HardwareSection = HardwareSection()
    google_cloud: GoogleCloudChoice = GoogleCloudChoice()
    limits: Limits = Limits()
    automation: AutomationChoice = AutomationChoice()
    notifications: NotificationChoice = NotificationChoice()

    @field_validator("*", mode="before")
    @classmethod
    def _empty_section(cls, value: Any) -> Any:
        return {} if value is None else value  # a section of comments alone

    def says(self, path: str) -> bool:
        """Whether the file itself states the value at a path such as `launcher.mode`."""
        model: Any = self
        for name in path.split("."):
            if name not in model.model_fields_set:
                return False
            model = getattr(model, name)
        return True


def find_deployment(name: str) -> Path:
    """The file of a deployment: a shipped one by its name, or a path.

    Raises:
        InputError: there is none; names those that ship.
    """
    folder = resources_root() / "deployments"
    if "/" in name or name.endswith(".yaml"):
        file = Path(name).expanduser().absolute()
    else:
        file = folder / f"{name}.yaml"
    if not file.is_file():
        known = ", ".join(sorted(one.stem for one in folder.glob("*.yaml")))
        raise InputError(f"CAPIBARA_DEPLOYMENT is {name!r}, no file {file}: choose from {known}, or give a path")
    return file


def read_deployment(name: str) -> tuple[Path, DeploymentFile]:
    """Read a deployment's file and its content; raises as `find_deployment` and `read_declared`."""
    file = find_deployment(name)
    return file, read_declared(file, DeploymentFile)
