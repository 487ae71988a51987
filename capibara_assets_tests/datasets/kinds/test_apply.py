"""Bullets are tied to executions by ids, never by likeness."""

from capibara_assets.datasets.kinds.apply import Lessons
from capibara_assets_tests.datasets.conftest import bullet


def test_an_id_that_several_agents_use_is_the_agents_own() -> None:
    rows = [
        bullet("s-1", "one", bullet_id=f"{agent}/s-1", origins=[f"{agent}/s-1"], agents=[agent]).model_dump()
        for agent in ("ada", "bob")
    ]
    lessons = Lessons.of(rows)

    def helped(agent: str | None, name: str = "s-1") -> list[str]:
        row = {"execution_id": "e", "sandbox_id": "s", "agent_id": agent, "bullet_ids": [name]}
        return [found["bullet_id"] for found in lessons.that_helped(row)]

    assert helped("bob") == ["bob/s-1"]
    assert helped(None) == helped("cat") == helped("ada", "unknown") == []
    assert helped(None, "ada/s-1") == ["ada/s-1"]
    assert lessons.that_helped({"execution_id": "e", "sandbox_id": "s", "agent_id": "ada"}) == []  # no such column yet
