"""The public names of executions, which can also be imported from the package itself.

| name | takes | returns |
|---|---|---|
| `record` | an E2B sandbox, a folder or file | the sandbox, each of whose executions leaves a JSON line there |

It is for agents' processes and imports little, so it is imported at once.
"""

from capibara_assets.executions.recording.recorder import record

__all__ = ["record"]
