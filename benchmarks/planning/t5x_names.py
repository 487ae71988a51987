"""T5X's configurable names, parameters and macros, extracted from its source: gin files are checked without T5X.

`python -m benchmarks.planning.t5x_names CHECKOUT > resources/gin/t5x_names.json` renews the table.
"""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

MODULES = (
    "t5x/adafactor.py",
    "t5x/gin_utils.py",
    "t5x/models.py",
    "t5x/partitioning.py",
    "t5x/train.py",
    "t5x/trainer.py",
    "t5x/utils.py",
    "t5x/examples/t5/network.py",
    "t5x/examples/scalable_t5/network.py",
)
GIN_FILES = (
    "t5x/configs/runs/finetune.gin",
    *(
        f"t5x/examples/{kind}/t5_1_1/{size}.gin"
        for kind in ("t5", "scalable_t5")
        for size in ("base", "small", "large", "xl", "xxl")
    ),
)
_MACRO = re.compile(r"^([A-Z][A-Z0-9_]*)\s*=\s*(.+?)\s*(?:#.*)?$", re.MULTILINE)


def table(checkout: Path) -> dict[str, Any]:
    """Names to sorted parameter lists, and per gin file the macros that it still requires or defines.

    Raises:
        subprocess.CalledProcessError: `checkout` is no git checkout.
        FileNotFoundError: it is not T5X.
    """
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=checkout, check=True, capture_output=True, text=True
    ).stdout.strip()
    configurables: dict[str, list[str]] = {}
    for file in MODULES:
        configurables.update(_configurables(file, (checkout / file).read_text(encoding="utf-8")))
    macros = {file: _macros((checkout / file).read_text(encoding="utf-8")) for file in GIN_FILES}
    return {
        "source": "google-research/t5x",
        "commit": commit,
        "configurables": dict(sorted(configurables.items())),
        "gin_files": macros,
    }


def _configurables(file: str, source: str) -> dict[str, list[str]]:
    module = file.removesuffix(".py").replace("/", ".")
    tree = ast.parse(source)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    parameters = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            parameters[f"{module}.{node.name}"] = sorted(_arguments(node))
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            parameters[f"{module}.{node.name}"] = sorted(_constructor(node, classes))
    return parameters


def _constructor(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Parameters of `__init__`, or the annotated fields of a dataclass; inherited where the class has none itself."""
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return _arguments(statement) - {"self"}
    own = {
        item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes:
            own |= _constructor(classes[base.id], classes)
    return own


def _arguments(node: ast.FunctionDef) -> set[str]:
    return {argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}


def _macros(text: str) -> dict[str, list[str]]:
    # Later lines win, as in gin: finetune.gin requires MIXTURE_OR_TASK_MODULE and then sets it to None.
    last = dict(_MACRO.findall(text))
    required = sorted(name for name, value in last.items() if value == "%gin.REQUIRED")
    return {"required": required, "defined": sorted(set(last) - set(required))}


if __name__ == "__main__":
    json.dump(table(Path(sys.argv[1])), sys.stdout, indent=1)
    sys.stdout.write("\n")
