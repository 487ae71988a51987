"""Scripts of Codex's code mode: the commands and patches that they stand for, and what their answers tell of them."""

import json
from typing import Any

import pytest

from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, NotRun
from capibara_assets.executions.formats.agents.tools.codex_scripts import AskedTool, asked_tools
from capibara_assets_tests.executions.formats.agents.tools.test_codex import (
    META,
    PATCH,
    answer,
    call,
    ended,
    item,
    read,
)

DONE = "Script completed\nWall time 0.5 seconds\nOutput:\n"
FAILED = "Script failed\nWall time 0.5 seconds\nOutput:\n"


def script(key: str, code: str) -> dict[str, Any]:
    return item("custom_tool_call", name="exec", input=code, call_id=key)


def printed(key: str, *texts: str, head: str = DONE) -> dict[str, Any]:
    parts = [{"type": "input_text", "text": text} for text in (head, *texts)]
    return item("custom_tool_call_output", call_id=key, output=parts)


def result(output: str, **told: Any) -> dict[str, Any]:
    return {"chunk_id": "a1", "wall_time_seconds": 0.25, **told, "output": output}


def told(code: str, *texts: str, head: str = DONE) -> list[Entry]:
    return read(META, script("c1", code), printed("c1", *texts, head=head))


def runs(entries: list[Entry]) -> list[tuple[str, bool | None, str]]:
    return [(entry.code, entry.success, entry.output) for entry in entries if isinstance(entry, AgentRun)]


@pytest.mark.parametrize(("exit_code", "success"), [(0, True), (127, False)])
def test_a_command_has_the_exit_code_of_its_result(exit_code: int, success: bool) -> None:
    code = (
        'const r = await tools.exec_command({cmd:"tidy \\"a b\\" \\u0026& ls","workdir":"/w"}); text(JSON.stringify(r))'
    )
    (run,) = told(code, json.dumps(result("no\n", exit_code=exit_code)))
    assert isinstance(run, AgentRun)
    assert (run.language, run.code, run.call_id) == ("bash", 'tidy "a b" && ls', "c1")
    assert (run.success, run.exit_code, run.output, run.duration_ms) == (success, exit_code, "no\n", 250)


def test_the_scripts_own_end_tells_nothing_of_a_command() -> None:
    code = "const r = await tools.exec_command({cmd: 'ls'}); text(r.output)"
    assert runs(told(code, "a\n")) == [("ls", None, "a\n")]
    assert runs(told(code, "a\n", head=FAILED)) == [("ls", None, "a\n")]
    as_text = item("custom_tool_call_output", call_id="c1", output=DONE + "a\n")
    assert runs(read(META, script("c1", code), as_text)) == [("ls", None, "a\n")]


def test_several_commands_have_their_results_in_order() -> None:
    code = """const at = '/w', all = await Promise.all([
      tools.exec_command({cmd: `ls ${at}`}), tools.exec_command({cmd: "make"})]);
    for (const one of all) text(JSON.stringify(one))"""
    first, second = result("a", exit_code=0), result("b", exit_code=2)
    entries = told(code, json.dumps(first), json.dumps(second))
    assert runs(entries) == [("ls /w", True, "a"), ("make", False, "b")]
    assert [entry.call_id for entry in entries if isinstance(entry, AgentRun)] == ["c1/1", "c1/2"]
    assert runs(told(code, json.dumps([first, second]))) == runs(entries)
    assert runs(told(code, json.dumps({"a": first, "b": second}))) == runs(entries)
    assert runs(told(code, "a", "b")) == [("ls /w", None, ""), ("make", None, "")]


@pytest.mark.parametrize(
    "code",
    [
        "for (const cmd of ['ls', 'make']) { const r = await tools.exec_command({cmd}); text(r) }",
        "const todo = ['ls', 'make']; await Promise.all(todo.map(async (c) => tools.exec_command({cmd: c})))",
        "for (const [name, cmd] of [['a', 'ls'], ['b', 'make']]) text(await tools.exec_command({cmd}))",
        "[{cmd: 'ls'}, {cmd: 'make'}].forEach(({cmd}) => { tools.exec_command({cmd, tty: false}) })",
    ],
)
def test_a_command_for_each_item_of_a_list(code: str) -> None:
    texts = [json.dumps(result("a", exit_code=0)), json.dumps(result("b", exit_code=2))]
    assert runs(told(code, *texts)) == [("ls", True, "a"), ("make", False, "b")]


def test_a_command_that_goes_on_ends_with_a_later_look() -> None:
    first = "const r = await tools.exec_command({cmd: 'make'}); text(JSON.stringify(r))"
    look = "const r = await tools.write_stdin({session_id: 77, chars: ''}); text(r.output)"
    last = "text(JSON.stringify(await tools.write_stdin({session_id: 77})))"
    lines = [META, script("c1", first), printed("c1", json.dumps(result("a", session_id=77)))]
    lines += [script("c2", look), printed("c2", "b")]
    assert runs(read(*lines)) == [("make", None, "ab")]
    lines += [script("c3", last), printed("c3", json.dumps(result("c", exit_code=2)))]
    assert runs(read(*lines)) == [("make", False, "abc")]
    lines = [*lines[:3], call("w1", {"session_id": 77}, "write_stdin")]
    lines += [answer("w1", "Wall time: 1 seconds\nProcess exited with code 0\nOutput:\nd")]
    assert runs(read(*lines)) == [("make", True, "ad")]


def test_a_script_that_goes_on_is_looked_at_by_wait() -> None:
    code = "const r = await tools.exec_command({cmd: 'make'}); text('begun'); text(JSON.stringify(r))"
    lines = [
        script("c1", code),
        printed("c1", "begun", head="Script running with cell ID 4\nWall time 9 seconds\nOutput:\n"),
    ]
    assert runs(read(META, *lines)) == [("make", None, "begun")]
    lines += [call("w1", {"cell_id": "4"}, "wait"), printed("w1", json.dumps(result("a", exit_code=0)))]
    assert runs(read(META, *lines)) == [("make", True, "a")]


def test_patches_and_plans_are_no_runs() -> None:
    code = f"const patch = {json.dumps(PATCH)};\ntext(await tools.apply_patch(patch));"
    edits = [Edit("s1", "a.py", "*** Update File: a.py\n@@\n-x\n+y"), Edit("s1", "b.py", "*** Add File: b.py\n+z")]
    assert told(code, "{}") == edits
    assert told(code.replace(json.dumps(PATCH), f"String.raw`{PATCH}`"), "{}") == edits
    assert told(code.replace(json.dumps(PATCH), f"{json.dumps(PATCH.split(chr(10)))}.join('\\n')"), "{}") == edits
    assert told(code, "Script error:\nno such file", head=FAILED) == []
    assert told("await tools.update_plan({plan: [{step: 'a'}]})", "{}") == []
    both = code + "\nconst r = await tools.exec_command({cmd: 'ls'}); text(r.output)"
    assert told(both, "{}", "a")[1:] == edits


@pytest.mark.parametrize(
    "code",
    [
        "const r = await tools.exec_command({cmd: 'ls ' + names.pop()})",
        "const run = cmd => tools.exec_command({cmd}); await run('ls')",
        "const {exec_command} = tools; await exec_command({cmd: 'ls'})",
        "await tools[name]({cmd: 'ls'})",
        "let cmd = 'ls'; cmd += ' -l'; await tools.exec_command({cmd})",
        "await tools.exec_command({cmd: 'ls'}",
        "if (ready) await tools.exec_command({cmd: 'ls'})",
    ],
)
def test_what_is_made_as_it_runs_stands_as_the_script(code: str) -> None:
    (run,) = told(code, "a")
    assert isinstance(run, AgentRun)
    assert (run.language, run.code, run.success, run.output) == ("javascript", code, None, "a")
    assert runs(told(code, head=FAILED)) == [(code, False, "")]


def test_commands_under_a_condition_ran_if_each_has_its_result() -> None:
    code = """const r = await tools.exec_command({cmd: 'make'}); text(JSON.stringify(r));
    if (r.exit_code) text(JSON.stringify(await tools.exec_command({cmd: 'make clean'})))"""
    bad, good = json.dumps(result("a", exit_code=2)), json.dumps(result("b", exit_code=0))
    assert runs(told(code, bad, good)) == [("make", False, "a"), ("make clean", True, "b")]
    assert [made[1] for made in runs(told(code, good))] == [True]


def test_a_script_that_computes_is_javascript() -> None:
    assert runs(told("text(6 * 7)", "42")) == [("text(6 * 7)", True, "42")]
    (run,) = told("throw 1", head=FAILED)
    assert isinstance(run, AgentRun)
    assert (run.language, run.success, run.exit_code) == ("javascript", False, None)


def test_what_was_refused_or_has_no_answer_did_not_run() -> None:
    code = "text(await tools.exec_command({cmd: 'rm x'}))"
    refusal = (
        'Script error:\nexec_command failed for `rm x`: CreateProcess { message: "Rejected(\\"rejected by user\\")" }'
    )
    assert told(code, refusal, head=FAILED) == [NotRun("refused")]
    assert read(META, script("c1", code)) == [NotRun("unanswered")]


def test_an_answer_that_is_repeated_counts_once() -> None:
    lines = [script("c1", "text((await tools.exec_command({cmd: 'ls'})).output)"), printed("c1", "who")]
    assert runs(read(META, *lines, *lines)) == [("ls", None, "who")]


def test_an_event_is_the_same_command_once_more() -> None:
    code = "text((await tools.exec_command({cmd: 'ls'})).output)"
    lines = [script("c1", code), ended("exec-1", 1, command=["/bin/zsh", "-lc", "ls"]), printed("c1", "who")]
    assert runs(read(META, *lines)) == [("ls", False, "whole\n")]


@pytest.mark.parametrize(
    ("code", "given"),
    [
        ("tools.exec_command({cmd: '\\x41\\u{1F600}\\ud83d\\ude00\\\n!', n: 1.5, b: null, 'c d': [true]})",
         {"cmd": "A😀😀!", "n": 1.5, "b": None, "c d": [True]}),
        ("const o = {a: 1}; tools.exec_command({...o, cmd: ('a' + 1 + `b\\``)})", {"a": 1, "cmd": "a1b`"}),
        ("tools.exec_command({cmd: x, a: 'b'})", {"a": "b"}),
        ("tools.exec_command()", {}),
        ("tools.exec_command({cmd: 1 + 2})", {}),
    ],
)  # fmt: skip
def test_stated_values(code: str, given: Any) -> None:
    assert asked_tools(code) == [AskedTool("exec_command", given, True)]


def test_deep_and_endless_scripts_are_not_followed() -> None:
    unknown = [AskedTool("", None, False)]
    assert asked_tools("(" * 5000 + "tools.x()" + ")" * 5000) == unknown
    assert asked_tools("[" * 300 + "tools.x()" + "]" * 300) == unknown
    many = "const a = [" + "1," * 150 + "];"
    assert asked_tools(many + "for (const x of a) for (const y of a) tools.x({x, y})") == unknown
    loops = "for (const x of a) ".replace("x", "{}")
    assert asked_tools(many + "".join(map(loops.format, "bcdef")) + "say('tools')") == unknown
    doubled = "const a0 = 'x';" + "".join(f"const a{n} = a{n - 1} + a{n - 1};" for n in range(1, 60))
    assert asked_tools(doubled + "tools.x(a59)") == [AskedTool("x", None, True)]
    assert asked_tools("const a = 'x';" + "tools.x(a" + " + a" * 90 + ")")[0].given == "x" * 91
