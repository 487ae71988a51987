"""The formats of agents' logs: a new one is a module with a `READER`, and its line here."""

import re
from functools import cache

from capibara_assets.executions.formats.agents.autogen import agentchat_console, chat_history
from capibara_assets.executions.formats.agents.autogen import console as autogen_console
from capibara_assets.executions.formats.agents.chats import agent_zero, chatgpt, llm_logs, open_webui, terminus
from capibara_assets.executions.formats.agents.general import (
    announced_calls,
    code_and_outcome,
    event_pairs,
    fenced_turns,
    linked_calls,
    markdown_calls,
    printed_records,
    react_text,
    run_trees,
    shell_marks,
    stepwise_calls,
    tagged_calls,
)
from capibara_assets.executions.formats.agents.hosted import (
    api_cassettes,
    bedrock_traces,
    codeact_console,
    dspy_history,
    langchain_console,
    langchain_messages,
    mini_console,
    openai_assistants,
    smolagents_console,
)
from capibara_assets.executions.formats.agents.pages import (
    claude_html,
    copilot_copied,
    pi_html,
    specstory_plain,
    zed_markdown,
)
from capibara_assets.executions.formats.agents.programs import (
    aide_journal,
    appworld,
    ask_say,
    cline_history,
    codex_terminal,
    copilot_chat,
    da_agent,
    gptme_terminal,
    jules,
    jupyter_messages,
    lmc_messages,
    n8n,
    smolagents,
    smolagents_messages,
    taskweaver,
    terminal_screens,
    trae,
    warp,
)
from capibara_assets.executions.formats.agents.runs import LogDocument, Reader
from capibara_assets.executions.formats.agents.tools import (
    aider,
    antigravity,
    claude_code,
    claude_hooks,
    codex,
    codex_exec,
    entire_compact,
    gemini_cli,
    gemini_stream,
    gptme,
    openclaw,
    pi,
    specstory,
)
from capibara_assets.executions.formats.agents.trajectories import (
    adp,
    agentbench,
    atif,
    devai,
    inspect_log,
    intercode,
    lats,
    leetcode_judge,
    mini_swe_agent,
    mint,
    openhands,
    swe_agent,
    terminal_bench,
)
from capibara_assets.executions.formats.agents.wire import acp, ag_ui, json_rpc, otlp_logs
from capibara_assets.executions.formats.archives import is_archive

_WORD = re.compile(rb'"(?=([A-Za-z_.]+)")')  # in quotes, as most marks are

READERS: tuple[Reader, ...] = (
    aider.READER,
    antigravity.READER,
    claude_code.READER,
    terminal_screens.READER,
    claude_hooks.READER,
    claude_html.READER,
    pi_html.READER,
    codex.READER,
    codex_exec.READER,
    codex_terminal.READER,
    entire_compact.READER,
    gemini_cli.READER,
    gemini_stream.READER,
    gptme.READER,
    gptme_terminal.READER,
    openclaw.READER,
    pi.READER,
    specstory_plain.READER,
    specstory.READER,
    adp.READER,
    agentbench.READER,
    atif.READER,
    devai.READER,
    inspect_log.READER,
    intercode.READER,
    lats.READER,
    leetcode_judge.READER,
    mini_swe_agent.READER,
    mint.READER,
    openhands.READER,
    smolagents.READER,
    smolagents_messages.READER,
    da_agent.READER,  # before the next, whose steps are as named
    swe_agent.READER,
    api_cassettes.READER,
    agentchat_console.READER,
    autogen_console.READER,
    chat_history.READER,
    bedrock_traces.READER,
    codeact_console.READER,
    dspy_history.READER,
    langchain_console.READER,
    langchain_messages.READER,
    mini_console.READER,
    openai_assistants.READER,
    smolagents_console.READER,
    shell_marks.READER,
    terminal_bench.READER,  # behind the consoles that a recording may show
    aide_journal.READER,
    appworld.READER,
    ask_say.READER,
    cline_history.READER,
    copilot_chat.READER,
    copilot_copied.READER,
    jules.READER,
    jupyter_messages.READER,
    lmc_messages.READER,
    n8n.READER,
    agent_zero.READER,
    chatgpt.READER,
    llm_logs.READER,
    open_webui.READER,
    terminus.READER,
    run_trees.READER,
    tagged_calls.READER,
    taskweaver.READER,
    trae.READER,
    warp.READER,
    zed_markdown.READER,
    acp.READER,
    ag_ui.READER,
    json_rpc.READER,
    otlp_logs.READER,
    linked_calls.READER,  # by shape alone, as the next: behind all that know their format
    code_and_outcome.READER,
    event_pairs.READER,
    printed_records.READER,
    stepwise_calls.READER,
    fenced_turns.READER,
    markdown_calls.READER,
    react_text.READER,
    announced_calls.READER,
)


def find_reader(document: LogDocument) -> Reader | None:
    """The format of a document, told by its content; None: no agent's log."""
    if is_archive(document.data):  # a member that is not compressed has marks of its own
        return inspect_log.READER if inspect_log.READER.reads(document) else None
    for reader in READERS:
        if any(mark in document.data for mark in reader.marks) and reader.reads(document):
            return reader
    return None


def may_be_agents(head: bytes) -> bool:
    """Whether a file that begins like this may be an agent's log, which is told from the whole of it."""
    words, others = _marks(READERS)
    return not words.isdisjoint(_WORD.findall(head)) or any(mark in head for mark in others)


@cache
def _marks(readers: tuple[Reader, ...]) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """The marks that are a word in quotes (without these), which are found in one pass, and all others."""
    marks = frozenset(mark for reader in readers for mark in reader.marks)
    quoted = frozenset(mark for mark in marks if re.fullmatch(rb'"[A-Za-z_.]+"', mark))
    return frozenset(mark[1:-1] for mark in quoted), marks - quoted
