"""TaskWeaver's conversations, as YAML (`raw_exp_*.yaml`, kept as experience) or as JSON.

`{"rounds": [{"user_query", "post_list": [{"attachment_list": [{"type", "content"}]}]}]}`: the attachments of one post
of the code interpreter are its reply's kind, the code, how its check went, and how its execution went. Traps: every
attachment stands there though nothing ran (`execution_status` `NONE`: the check refused the code); a reply may be text;
the result begins with a sentence of TaskWeaver's own; logs and output stand in it one after the other.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml

from capibara_assets.deployment.yaml_text import holds_at_most, load_yaml
from capibara_assets.executions.formats.agents.fields import objects, record, word
from capibara_assets.executions.formats.agents.runs import AgentRun, Entry, LogDocument, NotRun, Reader

_ROUNDS = re.compile(r"^rounds:", re.MULTILINE)
_ENDED = {"SUCCESS": True, "FAILURE": False}
_OWN = re.compile(
    r"The execution of the (?:generated \w+|previous generated) code (?:above )?has (?:succeeded|failed)\.?\s*"
    r"|(?:The execution is successful but no output is generated|No code is executed)\.?\s*\Z"
    r"|(?:The result of above Python code after execution is|During execution, the following messages were logged):\n"
)


def reads(document: LogDocument) -> bool:
    """Whether a post has attachments, and anything an id: examples for a prompt have none."""
    conversation = _conversation(document)
    posts = [post for _, post in _posts(conversation)]
    held = [one for post in posts for one in objects(post.get("attachment_list"))]
    named = [conversation, *objects(conversation.get("rounds")), *posts, *held]
    return any("attachment_list" in post for post in posts) and any(word(one.get("id")) for one in named)


def entries(document: LogDocument) -> Iterator[Entry]:
    """The code of each post in order."""
    conversation = _conversation(document)
    session = word(conversation.get("id")) or document.digest
    for task, post in _posts(conversation):
        held = {str(one.get("type")): one.get("content") for one in objects(post.get("attachment_list"))}
        code = word(held.get("reply_content", held.get("python")))
        if code is None or held.get("reply_type", "python") != "python":
            continue
        status = str(held.get("execution_status"))
        if status not in _ENDED:
            yield NotRun("refused" if held.get("verification") == "INCORRECT" else "unanswered", session, code)
            continue
        output = _OWN.sub("", word(held.get("execution_result")) or "")
        yield AgentRun(session, "python", code, _ENDED[status], output=output, call_id=word(post.get("id")), task=task)


def _posts(conversation: dict[str, Any]) -> Iterator[tuple[str | None, dict[str, Any]]]:
    """The posts, each with what the user asked for."""
    for round_ in objects(conversation.get("rounds")):
        for post in objects(round_.get("post_list")):
            yield word(round_.get("user_query")), post


def _conversation(document: LogDocument) -> dict[str, Any]:
    """The object in JSON or YAML; an empty one where there is none."""
    if document.value is not None:
        return record(document.value)
    if not _ROUNDS.search(document.text):  # parsing YAML is slow: no large log that only mentions attachments
        return {}
    try:
        conversation = load_yaml(document.text)
    except yaml.YAMLError:
        return {}
    return record(conversation) if holds_at_most(conversation, len(document.text)) else {}


READER = Reader("taskweaver", (b"attachment_list",), reads, entries)
