"""Storage layout of a domain's examples for the trainers of TPU plans: our own, MaxText and T5X.

`capibara dataset export --storage ROOT` writes there, plans name these files, and T5X's tasks
(`resources/gin/capibara_tasks.py`, which runs without this package) spell the same path.
"""

DATA = "data"


def data_folder(root: str, domain: str) -> str:
    """The folder of a domain's exported splits; `root` is a folder or a gs:// path."""
    return f"{root.rstrip('/')}/{domain}/{DATA}"


def split_file(root: str, domain: str, split: str) -> str:
    """A split's JSON lines."""
    return f"{data_folder(root, domain)}/{split}.jsonl"
