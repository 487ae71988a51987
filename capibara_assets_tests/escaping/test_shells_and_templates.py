"""Foreign text is data to shells and template engines: no shell reads it, and it is never a template."""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

import capibara_assets
from capibara_assets.datasets.tokens.templates_jinja import JinjaTemplate
from capibara_assets.evaluation.serving.export import vllm_commands
from capibara_assets_tests.escaping.hostile import HOSTILE

PACKAGE = Path(capibara_assets.__file__).parent
SHELLS = {"sh", "bash", "dash", "zsh", "/bin/sh", "/bin/bash"}
# A file without one of these words makes no call that is looked for, and is not parsed
TELLING = re.compile(
    r"\bshell=|_shell\(|\bsystem\(|popen|getoutput|getstatusoutput|from_string|jinja2\.Template|Environment\.compile"
    r"|['\"](/bin/)?(ba|da|z)?sh['\"], *['\"]-"
)
# A chat template is a file of the base model, compiled by Jinja's sandbox; text of examples is a value of it
COMPILED = {"training/data/token_counts.py"}


@cache
def calls() -> list[tuple[str, ast.Call]]:
    texts = {file.relative_to(PACKAGE).as_posix(): file.read_text("utf-8") for file in sorted(PACKAGE.rglob("*.py"))}
    told = {name: ast.walk(ast.parse(text)) for name, text in texts.items() if TELLING.search(text)}
    return [(name, node) for name, nodes in told.items() for node in nodes if isinstance(node, ast.Call)]


def starts_a_shell(call: ast.Call) -> bool:
    """Whether a call lets a shell read text: by name, by `shell=`, or by a list that begins `bash -c`."""
    named = ast.unparse(call.func).rpartition(".")[2]
    if named in ("system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"):
        return ast.unparse(call.func) not in ("platform.system",)
    if any(keyword.arg == "shell" for keyword in call.keywords):
        return True
    first = call.args[0] if call.args else None
    words = first.elts[:2] if isinstance(first, ast.List | ast.Tuple) else []
    texts = [word.value for word in words if isinstance(word, ast.Constant)]
    return len(texts) == 2 and texts[0] in SHELLS and str(texts[1]).startswith("-") and "c" in str(texts[1])


def compiles_a_template(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    return name.endswith(("from_string", "jinja2.Template", "Environment.compile")) and "AssetSelection" not in name


def test_no_call_starts_a_shell() -> None:
    assert not [(file, call.lineno) for file, call in calls() if starts_a_shell(call)]


def test_only_a_models_own_chat_template_is_compiled() -> None:
    assert {file for file, call in calls() if compiles_a_template(call)} == COMPILED


@pytest.mark.parametrize(
    "source", ["run(x, shell=True)", "os.system(x)", "run(['bash', '-lc', x])", "Popen(('sh', '-c', f'{x}'))"]
)
def test_a_shell_is_found(source: str) -> None:
    assert starts_a_shell(next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)))


def test_turns_are_values_of_a_chat_template() -> None:
    template = JinjaTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", {}, ())
    for text in (HOSTILE["template"], "{{ cycler.__init__.__globals__.os.popen('touch owned') }}"):
        shown = template.text_of([{"role": "user", "content": text}], generation_prompt=False)
        assert shown == f"<user>{text}"


@pytest.mark.parametrize(
    "base", ["nano", HOSTILE["shell"], "a}; touch owned; ${b", "it's; touch owned", 'a"$(touch owned)"']
)
def test_a_models_name_is_one_word_of_the_commands_that_serve_it(base: str, tmp_path: Path) -> None:
    command = vllm_commands({"python": 8}, base, False, [])["experts"]
    script = "vllm() { printf '%s\\0' \"$@\"; }\nunset BASE_MODEL\n" + command
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split("\0")[:3] == ["serve", base, "--enable-lora"] and not list(tmp_path.iterdir())
