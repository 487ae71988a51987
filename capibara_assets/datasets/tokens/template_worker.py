"""Worker process that renders foreign chat templates: JSON lines in and out, within limits.

It is run as a file and imports nothing of this project. Whoever takes more processor time than a render may is ended by
the kernel; more memory is a MemoryError.
"""

import json
import resource
import signal
import sys

SECONDS = 1.0  # of processor time for one text; the slowest published template takes a hundredth
MEMORY = 512 << 20
CHARACTERS = 16 << 20  # of a rendered text


def limit() -> None:
    """Limit this process from now on: memory, no new files, no core dump, Ctrl-C ignored."""
    for kind, most in ((resource.RLIMIT_DATA, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(kind, (most, most))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)


def answer(render, request):  # type: ignore[no-untyped-def]
    """Render a request to {"text", "marks"}, or {"error"}: any error of a template is a refusal."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        texts, marks = render(
            conversations=[request["messages"]],
            chat_template=request["template"],
            return_assistant_tokens_mask=request["marked"],
            add_generation_prompt=request["generation_prompt"],
            **request["arguments"],
        )
        if len(texts[0]) > CHARACTERS:
            return {"error": f"it writes more than {CHARACTERS >> 20} Mi characters"}
        return {"text": texts[0], "marks": marks[0] if request["marked"] else []}
    except MemoryError:
        return {"error": f"it takes more than {MEMORY >> 20} MiB of memory"}
    except Exception as error:  # noqa: BLE001 - it goes to the process that asked
        own = type(error).__module__.startswith("jinja2")
        return {"error": str(error) if own else f"{type(error).__name__} {error}".strip()}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    """Answer lines until the input ends."""
    for heavy in ("torch", "PIL"):  # Transformers imports them on the chance that a template's values are theirs
        sys.modules[heavy] = None  # type: ignore[assignment]
    from transformers.utils.chat_template_utils import render_jinja_template

    limit()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(render_jinja_template, json.loads(line))) + "\n")  # type: ignore[no-untyped-call]
        sys.stdout.flush()


if __name__ == "__main__":
    main()
