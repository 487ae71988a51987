"""Automation sensors that evaluate again once a run has ended, not only after their whole interval.

A chain of assets is made one link an evaluation, and at an interval of 20 s every link waits. Evaluating every
few seconds instead would cost an idle machine, or one with 10,000 partitions, much of a core.
"""

import time
from datetime import UTC, datetime

import dagster as dg
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.storage.dagster_run import FINISHED_STATUSES
from dagster._core.storage.tags import PRIORITY_TAG
from dagster._record import copy

from capibara_assets.deployment.environment import Deployment

TICK_SECONDS = Deployment.from_environment().tick_seconds
WAKE_SECONDS = min(5, TICK_SECONDS)
_NEWS = dg.AssetKey("e2b_patterns")  # made again only for domains whose executions have changed
_RAISED = 2  # training of the newest domain (0) also goes before datasets of the others (1), not before arrivals (3)
_SHARE = 5  # a look waits so many times as long as the last one took, however often runs end


class PromptAutomation(dg.AutomationConditionSensorDefinition):
    """An automation sensor that evaluates its conditions every `TICK_SECONDS`, and sooner after the end of a run.

    The end of a run counts for two evaluations: some conditions hold only at the one after that which saw its result.
    Dagster wakes it every `WAKE_SECONDS`; where nothing has ended it asks for the newest run that did, and skips.
    """

    _looked = 0.0  # when the last look began (seconds since 1970); a new process looks at once
    _before = 0.0  # and the one before it
    _took = 0.0

    def evaluate_tick(self, context: dg.SensorEvaluationContext) -> SensorExecutionData:
        now = time.time()
        if why_wait := self._why_wait(context.instance, now):
            return SensorExecutionData(skip_message=why_wait, cursor=context.cursor)
        self._before, self._looked = self._looked, now
        data = self.look(context)
        self._took = time.time() - now
        return data

    def look(self, context: dg.SensorEvaluationContext) -> SensorExecutionData:
        """Evaluate the conditions; runs of the domain with the newest executions go first."""
        data = super().evaluate_tick(context)
        if not any(one.partition_key for one in data.run_requests or ()):
            return data
        event = dg.DagsterEventType.ASSET_MATERIALIZATION
        news = context.instance.get_latest_storage_id_by_partition(_NEWS, event)
        newest = max(news, key=news.__getitem__, default="")
        ordered = sorted(data.run_requests, key=lambda one: -news.get(one.partition_key or "", 0))
        return copy(data, run_requests=[_raised(one) if one.partition_key == newest else one for one in ordered])

    def _why_wait(self, instance: dg.DagsterInstance, now: float) -> str:
        """Why it is too early to evaluate again; empty where it is time."""
        since = now - self._looked
        if not 0 <= since < TICK_SECONDS:
            return ""
        if since < _SHARE * self._took:
            return f"the last look took {self._took:.1f} s: the next one waits {_SHARE} times as long"
        ended = dg.RunsFilter(statuses=list(FINISHED_STATUSES), updated_after=datetime.fromtimestamp(self._before, UTC))
        if instance.get_run_records(ended, limit=1):
            return ""
        return f"no run ended for two looks, the last {since:.0f} s ago; the next one is due {TICK_SECONDS} s after it"


def _raised(request: dg.RunRequest) -> dg.RunRequest:
    """The request, before those of other partitions in the queue of runs."""
    return copy(request, tags={**request.tags, PRIORITY_TAG: str(int(request.tags.get(PRIORITY_TAG, 0)) + _RAISED)})
