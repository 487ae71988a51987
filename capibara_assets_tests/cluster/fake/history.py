"""What changed in a fake cluster, in order: resource versions, and the events that watchers are told."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Document = dict[str, Any]
API_VERSIONS = {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2", "Pod": "v1"}
_OWN = {"since", "done", "counted", "recreating"}
"""What the controllers keep in a status, and no client sees."""


@dataclass(frozen=True)
class Event:
    """A change of one object, and the object after it (of one that was deleted, as it was last)."""

    version: int
    kind: str
    type: str
    shown: Document


@dataclass
class History:
    """The last changes of a cluster.

    Attributes:
        version: of the last change; each has the next number.
        forgotten: changes up to this one are no longer known: a watch from there is 410, Gone.
    """

    events: list[Event] = field(default_factory=list)
    version: int = 0
    forgotten: int = 0
    _known: dict[tuple[str, str], tuple[str, Document]] = field(default_factory=dict)

    def observe(self, kind: str, objects: Mapping[str, Document]) -> None:
        """Take note of what is other than before, and give each changed object its version."""
        for name in [name for one, name in self._known if one == kind]:
            text, last = self._known[kind, name]
            if name not in objects or objects[name]["metadata"]["uid"] != last["metadata"]["uid"]:
                del self._known[kind, name]
                self._add(kind, "DELETED", last)
        for name, found in objects.items():
            now = shown(kind, found)
            now["metadata"].pop("resourceVersion", None)
            text = json.dumps(now, sort_keys=True)
            former = self._known.get((kind, name))
            if former is not None and former[0] == text:
                continue
            found["metadata"]["resourceVersion"] = str(self.version + 1)
            self._add(kind, "ADDED" if former is None else "MODIFIED", json.loads(text))
            self._known[kind, name] = (text, self.events[-1].shown)

    def _add(self, kind: str, type_: str, about: Document) -> None:
        self.version += 1
        versioned = {**about, "metadata": {**about["metadata"], "resourceVersion": str(self.version)}}
        self.events.append(Event(self.version, kind, type_, versioned))

    def since(self, version: int, kind: str) -> list[Event] | None:
        """The changes of a kind after a version; None where some are no longer known."""
        if version < self.forgotten:
            return None
        return [event for event in self.events if event.version > version and event.kind == kind]

    def forget(self) -> None:
        """Compact: no change until now is known any more."""
        self.events.clear()
        self.forgotten = self.version


def shown(kind: str, found: Mapping[str, Any]) -> Document:
    """A copy of an object as a client sees it."""
    status = {key: value for key, value in found["status"].items() if key not in _OWN}
    body = {"metadata": found["metadata"], "spec": found["spec"], "status": status}
    return {"apiVersion": API_VERSIONS[kind], "kind": kind, **json.loads(json.dumps(body))}
