"""What programs put around words and outputs: templates around a task, a shell's prompts, Jupyter's notes."""

import re

# the templates of SWE-agent (current, 0.x, capture the flag), mini-swe-agent (two) and OpenHands' issue resolver
_TASKS = tuple(
    (re.compile(opening), re.compile(closing))
    for opening, closing in (
        *((f"<{tag}>", f"</{tag}>") for tag in ("pr_description", "issue_description", "issue")),
        (r"(?:^|\n)ISSUE:\s*\n", r"\n[ \t]*INSTRUCTIONS:"),
        (r"The description is:\s*\n", r"\n[ \t]*(?:Files included in the challenge:|INSTRUCTIONS:)"),
        (r"\A\s*Please solve this issue: ", r"\n[ \t]*\nYou can execute bash commands"),
        (r"\A\s*Your task: ", r"\. Please reply with a single shell command"),
        (r"(?:^|\n)# Problem Statement\n", r"\n\nIMPORTANT:"),
    )
)
_LEAD = re.compile(r"\A\s*Consider the following PR description:\s*")
_PROMPT = re.compile(r"(?:\A|\n)(?:\[Python Interpreter: [^\]\n]*\]\n)?[\w.-]+@[\w.-]+:[^\s]* ?[$#](?: |\Z)")
_JUPYTER = re.compile(r"\n?\[Jupyter (?:current working directory|Python interpreter): [^\n]*\Z")
NO_OUTPUT = "[Code executed successfully with no output]"


def task_in(message: str) -> str | None:
    """The user's words in a message that a template may surround; None where it is blank."""
    for opening, closing in _TASKS:
        opened = opening.search(message)
        closed = closing.search(message, opened.end()) if opened else None
        if opened and closed:  # where the first is not closed, no later one is
            return _LEAD.sub("", message[opened.end() : closed.start()]).strip() or None
    return message.strip() or None


def terminal_output(screen: str, code: str) -> str:
    """What commands printed to a terminal: its line ends, its prompts and its echo of the code's lines are left out."""
    first, *rest = _PROMPT.split(screen.replace("\r\n", "\n"))
    typed = {line.strip() for line in code.split("\n")}
    kept = [first]
    for piece in rest:
        echo, _, printed = piece.partition("\n")
        kept.append(printed if echo.strip() in typed else piece)
    return "\n".join(piece for piece in kept if piece)


def cell_output(content: str) -> str:
    """What a cell printed, without the notes that OpenHands adds of Jupyter's folder, interpreter and silence."""
    for _ in range(2):  # the folder's note, the interpreter's
        content = _JUPYTER.sub("", content)
    return "" if content.strip() == NO_OUTPUT else content
