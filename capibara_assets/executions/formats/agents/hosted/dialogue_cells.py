"""Which cells of a notebook hold an agent's dialogue, whose executions are not the cell's."""

from capibara_assets.executions.formats.agents.hosted import (
    autogen_agentchat_console,
    autogen_console,
    codeact_console,
    langchain_console,
    langchain_messages,
    smolagents_console,
)


def is_dialogue(cell_output_text: str) -> bool:
    """Whether what a cell printed is a dialogue in which an agent executed code."""
    formats = (
        autogen_console,
        autogen_agentchat_console,
        codeact_console,
        langchain_console,
        langchain_messages,
        smolagents_console,
    )
    return any(console.is_dialogue(cell_output_text) for console in formats)
