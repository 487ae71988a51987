"""trae-agent's trajectories: `llm_interactions` and `agent_steps` with `tool_calls`, `tool_results` of one `call_id`.

`success` is that of the command: the tool's `error_code` was 0. The number itself is not in the file, and each call
stands in both lists.
"""

from functools import partial

from capibara_assets.executions.formats.agents.fields import record
from capibara_assets.executions.formats.agents.general.linked_calls import entries
from capibara_assets.executions.formats.agents.runs import LogDocument, Reader


def reads(document: LogDocument) -> bool:
    """Whether it is one object with both lists."""
    value = record(document.value)
    return all(isinstance(value.get(name), list) for name in ("agent_steps", "llm_interactions"))


READER = Reader("trae-agent", (b'"agent_steps"',), reads, partial(entries, trusts_success=True))
