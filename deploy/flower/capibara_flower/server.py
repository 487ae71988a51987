"""The ServerApp: carries tasks and answers over Flower's grid; all else is `capibara_assets.training.remote.server`."""

import json
import logging
import math
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.common import FitIns, Parameters, parameters_to_ndarrays
from flwr.server import LegacyContext
from flwr.server.strategy import FedAvg
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD, Key
from flwr.serverapp import Grid, ServerApp

from capibara_assets.errors import InputError
from capibara_assets.training.remote.exchange import LEVELS, Answers, ClientTask
from capibara_assets.training.remote.server import serve_training
from capibara_assets.training.standalone.choices import RunOptions

TASK, ANSWER = "task", "answer"
_ASK_AGAIN_S = 3.0
_NAME_S = 120.0  # for a client to tell its name
_SHARES = 2 / 3  # of the clients asked that have to stay until the end of a secure sum
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the recipe's federated voter with the SuperNodes that are connected."""
    given = context.run_config
    for name in ("validation", "output"):
        if not Path(str(given[name])).is_absolute():
            raise InputError(f"--run-config {name}={str(given[name])!r}: give an absolute path")
    options = RunOptions(
        recipe=str(given["recipe"]), validation=(Path(str(given["validation"])),), output=Path(str(given["output"])),
        model=str(given["model"]) or None, settings=tuple(str(given["settings"]).split()),
    )  # fmt: skip
    done = serve_training(options, FlowerLink(grid, context), int(given["least"]), say)
    loss = done.info["validation_loss"]
    say(f"finished: validation loss {loss:.4f} -> {done.folder}")


def say(line: str) -> None:
    """Write a line into the run's log, which `flwr log` shows."""
    logging.getLogger("flwr").info(line)


class FlowerLink:
    """Clients behind SuperNodes, one behind each."""

    def __init__(self, grid: Grid, context: Context):
        given = context.run_config
        self._grid, self._context = grid, context
        self._connect_s, self._answer_s = float(given["connect-seconds"]), float(given["answer-seconds"])
        self._names: dict[int, str] = {}  # node -> client
        self.sums = bool(given["secure-aggregation"])

    def trained_by(self, clients: int) -> str:
        """Flower's version, the number of SuperNodes, and what hid their changes from the server."""
        how = ", SecAgg+" if self.sums else ""
        return f"flower {version('flwr')}, {clients} supernodes{how}"

    def ask(self, tasks: Mapping[str, ClientTask], weights: bytes, validation: bytes) -> Answers:
        """Ask the clients of a round that are connected, and wait for their answers."""
        nodes, away = self._nodes(list(tasks))
        told = {
            node: {"task": tasks[name].model_dump_json(), "weights": weights, "validation": validation}
            for name, node in nodes.items()
        }
        number = next(iter(tasks.values())).round
        return self._sum(number, told, away) if self.sums else self._each(number, told, away)

    def _nodes(self, wanted: list[str]) -> tuple[dict[str, int], dict[str, str]]:
        """Client -> its node, and client -> why it is not there; the first round waits for those that are missing."""
        until = time.monotonic() + self._connect_s
        self._connect_s = 0.0
        while True:
            there = set(self._grid.get_node_ids())
            self._ask_names(there - self._names.keys())
            # A SuperNode that was started again has another node, and the former counts as there for a minute more.
            self._ask_names({node for nodes in self._of(wanted, there).values() if len(nodes) > 1 for node in nodes})
            nodes = self._of(wanted, there)
            if twice := [name for name, several in nodes.items() if len(several) > 1]:
                raise InputError(f"several SuperNodes say that they are {', '.join(twice)}: stop all but one of each")
            missing = [name for name in wanted if not nodes[name]]
            if not missing or time.monotonic() > until:
                found = {name: several[0] for name, several in nodes.items() if several}
                return found, dict.fromkeys(missing, "no SuperNode says that it is this client")
            time.sleep(_ASK_AGAIN_S)

    def _of(self, wanted: list[str], there: set[int]) -> dict[str, list[int]]:
        """Client -> the connected nodes that say that they are this client."""
        return {name: [node for node in sorted(there) if self._names.get(node) == name] for name in wanted}

    def _ask_names(self, nodes: set[int]) -> None:
        for node in nodes:
            self._names.pop(node, None)
        questions = [Message(RecordDict(), dst_node_id=node, message_type="query") for node in sorted(nodes)]
        for reply in self._grid.send_and_receive(questions, timeout=_NAME_S) if questions else ():
            if not reply.has_error():
                name = str(reply.content.config_records[ANSWER]["client"])
                self._names[reply.metadata.src_node_id] = name
                say(f"{name} is connected")
            else:
                say(f"a SuperNode does not tell its name: {reply.error.reason}")

    def _each(self, number: int, told: Mapping[int, Mapping[str, Any]], away: dict[str, str]) -> Answers:
        messages = [
            Message(RecordDict({TASK: ConfigRecord(dict(one))}), dst_node_id=node, message_type="train",
                    group_id=str(number))
            for node, one in told.items()
        ]  # fmt: skip
        figures, weights, silent = {}, {}, dict(away)
        for reply in self._grid.send_and_receive(messages, timeout=self._answer_s):
            client = self._names.get(reply.metadata.src_node_id)
            if client is None:  # a message that its node lost has no sender; the round names the client as silent
                continue
            if reply.has_error():
                silent[client] = str(reply.error.reason)
            else:
                answer = reply.content.config_records[ANSWER]
                figures[client], weights[client] = str(answer["figures"]), bytes(answer["weights"])
        return Answers(figures, weights, silent)

    def _sum(self, number: int, told: Mapping[int, Mapping[str, Any]], away: dict[str, str]) -> Answers:
        """The sum of clipped changes by SecAgg+; needs two clients, and two thirds of them to the end."""
        if len(told) < 2:
            return Answers({}, silent=away | {self._names[node]: "a sum of one hides nothing" for node in told})
        kept = _Kept(told)
        legacy = LegacyContext(self._context, strategy=kept)
        legacy.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({Key.CURRENT_ROUND: number})
        legacy.state.array_records[MAIN_PARAMS_RECORD] = ArrayRecord()
        clip = json.loads(next(iter(told.values()))["task"])["clip"]
        workflow = SecAggPlusWorkflow(
            1.0, _SHARES, max_weight=1.0, clipping_range=clip, quantization_range=LEVELS, timeout=self._answer_s
        )
        workflow(self._grid, legacy)
        if kept.mean is None:
            least = max(2, math.ceil(_SHARES * len(told)))
            raise InputError(
                f"round {number}: secure aggregation gave no sum: {least} of {len(told)} clients have to stay "
                f"until its end. Start the missing ones, and the same run again; it goes on at round {number}"
            )
        figures = {self._names[node]: text for node, text in kept.figures.items()}
        silent = {self._names[node]: "left the round" for node in told if node not in kept.figures}
        return Answers(figures, silent=away | silent, total=kept.mean * len(figures))


class _Kept(FedAvg):
    """What Flower's workflow of a secure sum asks of a strategy: the nodes with their task, and where the mean goes."""

    def __init__(self, told: Mapping[int, Mapping[str, Any]]):
        super().__init__()
        self._told = told
        self.mean: np.ndarray[Any, np.dtype[np.float64]] | None = None
        self.figures: dict[int, str] = {}

    def configure_fit(self, server_round: int, parameters: Parameters, client_manager: Any) -> Any:
        empty = Parameters([], "numpy.ndarray")
        return [(SimpleNamespace(node_id=node), FitIns(empty, dict(one))) for node, one in self._told.items()]

    def aggregate_fit(self, server_round: int, results: Iterable[Any], failures: Any) -> Any:
        for proxy, result in results:
            self.figures[proxy.node_id] = str(result.metrics["figures"])
            (self.mean,) = (one.astype(np.float64) for one in parameters_to_ndarrays(result.parameters))
        return None, {}
