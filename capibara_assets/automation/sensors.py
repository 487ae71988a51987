"""Sensors: one requests a run when experience files arrive; the automation sensors materialize its dependents."""

import json
import time
from pathlib import Path
from typing import Any

import dagster as dg

from capibara_assets.automation.prompt import TICK_SECONDS, WAKE_SECONDS, PromptAutomation
from capibara_assets.automation.requests import FIRST, LastRequest, RunState, decide, request, run_state
from capibara_assets.automation.retraining.condition import ExplainedAutomation
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS
from capibara_assets.errors import InputError
from capibara_assets.resources import Experience
from capibara_assets.storage.arrivals import Lister, Sweep, local_lister, remote_lister, sweep
from capibara_assets.storage.mirror import file_system, is_remote

_DEPLOYMENT = Deployment.from_environment()
STATUS = dg.DefaultSensorStatus.RUNNING if _DEPLOYMENT.automation_on else dg.DefaultSensorStatus.STOPPED
QUIET_SECONDS = 2.0  # a file younger than this may still be being written: it waits for the next tick
SWEEP_SECONDS = 10.0  # of a tick for listing an asset's files; the next tick continues from there
PATIENCE_SECONDS = _DEPLOYMENT.patience_seconds
SUBFOLDERS = {"e2b_logs": "e2b_logs", "ace_playbooks": "playbooks"}


def open_root(location: str, asset: str) -> Lister:
    """A lister of the files that an asset reads: its own subfolder if it exists, else the whole folder.

    Raises:
        InputError: the folder does not exist.
    """
    if is_remote(location):
        system, root = file_system(location)
        own = f"{root.rstrip('/')}/{SUBFOLDERS[asset]}"
        system.invalidate_cache()  # a cached listing would miss new files
        return remote_lister(system, own if system.isdir(own) else root)
    folder = Path(location).expanduser()
    if not folder.is_dir():
        raise InputError(f"experience folder {folder} does not exist: give a folder of playbooks and execution logs")
    local = folder / SUBFOLDERS[asset]
    return local_lister(local if local.is_dir() else folder)


@dg.sensor(
    target=dg.AssetSelection.assets(*SUBFOLDERS),
    minimum_interval_seconds=TICK_SECONDS,
    default_status=STATUS,
    description="Watches the experience folder and requests one run per change of the logs or playbooks.",
)
def new_experience(context: dg.SensorEvaluationContext, experience: Experience) -> dg.SensorResult | dg.SkipReason:
    """Request a run for each asset whose files changed.

    The cursor holds one fingerprint and one request per asset, so that it stays small with any number of files.
    """
    cursor = json.loads(context.cursor) if context.cursor else {}
    now, requests, lines = time.time(), [], []
    for asset in SUBFOLDERS:
        asked = LastRequest.read(cursor[asset]) if asset in cursor else None
        try:
            lister = open_root(experience.folder, asset)
            begun = _sweep_from(cursor.pop(f"{asset}/sweep", None))
            state = sweep(lister, begun, now=now, quiet=QUIET_SECONDS, budget=SWEEP_SECONDS)
        except InputError as error:
            return dg.SkipReason(str(error))
        lines.append(f"{asset}: {state.files:,} files, {state.waiting} still being written")
        if not state.done:
            cursor[f"{asset}/sweep"] = [f"{state.total:x}", state.files, state.waiting, state.after]
            lines[-1] += f", listed as far as {'/'.join(state.after or ())!r}"
            continue
        if not state.files:
            continue
        run = run_state(context.instance, asked.key(asset)) if asked and not asked.done else RunState.UNKNOWN
        decision = decide(asked, state.fingerprint, run, now=now, patience=PATIENCE_SECONDS)
        cursor[asset] = str(decision.asked)
        lines[-1] += f", {decision.reason}"
        if decision.request and decision.asked is not None:
            requests.append(request(asset, decision.asked, {"capibara/files": state.files}))
    text = json.dumps(cursor, sort_keys=True)
    if not requests:
        reason = f"nothing new in {experience.folder} ({'; '.join(lines)})"
        return dg.SensorResult(skip_reason=dg.SkipReason(reason), cursor=text)
    return dg.SensorResult(run_requests=requests, cursor=text)


def _sweep_from(saved: list[Any] | None) -> Sweep:
    """The file listing that the last tick did not finish, or a new one."""
    if saved is None:
        return Sweep()
    total, files, waiting, after = saved
    return Sweep(int(total, 16), files, waiting, tuple(after) if after is not None else None)


# Disjoint targets, so that heavy work cannot starve light work.
HEAVY = (
    "trained_adapters",
    "consensus_checkpoint",
    "merged_checkpoint",
    "moe_checkpoint",
    "evaluation",
    "promoted_model",
)
# A run for each partition starts at once and in the order asked for. Thousands are one backfill, which Dagster begins
# within 30 s and makes in the order of their names
BACKFILLS = len(DOMAINS) > 50

light_automation = PromptAutomation(
    "light_automation",
    target=dg.AssetSelection.all() - dg.AssetSelection.assets(*HEAVY),
    default_status=STATUS,
    minimum_interval_seconds=WAKE_SECONDS,
    emit_backfills=BACKFILLS,
    run_tags=FIRST,
    use_user_code_server=True,  # `ChosenDomains` is a condition of our own: Dagster's daemon does not know it
)
heavy_automation = ExplainedAutomation(
    "heavy_automation",
    target=dg.AssetSelection.assets(*HEAVY),
    default_status=STATUS,
    minimum_interval_seconds=WAKE_SECONDS,
    emit_backfills=BACKFILLS,
    use_user_code_server=True,  # `ChosenDomains` is a condition of our own: Dagster's daemon does not know it
)
SENSORS = [new_experience, light_automation, heavy_automation]
