"""The ClientApp: trains one client's round in this process, and sends weights and counts, or a masked vector.

The SuperNode's --node-config has what never leaves it: client (its name), data, base and work (absolute paths).
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS
from flwr.compat.common import recorddict_compat

if TYPE_CHECKING:
    from capibara_assets.training.remote.client import ClientResult

TASK, ANSWER = "task", "answer"
app = ClientApp()


@app.query()
def who(message: Message, context: Context) -> Message:
    """Tell the client's name."""
    return Message(RecordDict({ANSWER: ConfigRecord({"client": _own(context)[0]})}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train a round; under secure aggregation take part in its four stages, of which one trains."""
    call: ClientAppCallable = _train_for_sum if RECORD_KEY_CONFIGS in message.content.config_records else _train
    try:
        if call is _train_for_sum:
            return secaggplus_mod(message, context, call)
        return call(message, context)
    except Exception:
        # An error's text may quote an example, and Flower sends it to the server: it stays in this machine's log.
        logging.getLogger("flwr").exception("the round failed")
        raise RuntimeError("failed: the log of this client's SuperNode says why") from None


def _train(message: Message, context: Context) -> Message:
    result = _trained(message.content.config_records[TASK], context)
    record = ConfigRecord({"figures": result.figures.model_dump_json(), "weights": result.weights})
    return Message(RecordDict({ANSWER: record}), reply_to=message)


def _train_for_sum(message: Message, context: Context) -> Message:
    """The clipped change as the one vector that the protocol masks; all clients weigh alike."""
    told = recorddict_compat.recorddict_to_fitins(message.content, keep_input=True).config
    result = _trained(told, context)
    answer = FitRes(
        Status(Code.OK, ""),
        ndarrays_to_parameters([result.clipped()]),
        1,
        {"figures": result.figures.model_dump_json()},
    )
    return Message(recorddict_compat.fitres_to_recorddict(answer, keep_input=True), reply_to=message)


def _trained(told: Mapping[str, Any], context: Context) -> "ClientResult":
    # Each message has a process of its own, and of those of a round only this one needs torch, which takes seconds.
    from capibara_assets.training.remote.client import OwnMaterials, train_round
    from capibara_assets.training.remote.exchange import ClientTask

    client, data, base, work = _own(context)
    own = OwnMaterials(client, (Path(data),), base, Path(work))
    return train_round(ClientTask.model_validate_json(told["task"]), told["weights"], told["validation"], own)


def _own(context: Context) -> list[str]:
    """The client's name, and where its examples, base and folder of work are."""
    given, names = context.node_config, ("client", "data", "base", "work")
    if missing := [name for name in names if not given.get(name)]:
        raise ValueError(f"--node-config of this SuperNode lacks {', '.join(missing)}")
    return [str(given[name]) for name in names]
