"""Advisories: vulnerable versions are named with what mends them, and what was not audited is never called sound."""

from workshop.supply_chain.advisories import audit_of

SOUND = {"name": "sound", "version": "1", "vulns": []}
UNKNOWN = {"name": "unknown", "skip_reason": "the index has no such document"}
VULNERABLE = {
    "name": "old",
    "version": "1.0",
    "vulns": [
        {"id": "PYSEC-1", "fix_versions": ["1.1", "2.0"], "aliases": [], "description": ""},
        {"id": "PYSEC-2", "fix_versions": [], "aliases": [], "description": ""},
    ],
}


def test_vulnerable_versions_are_named_first_with_what_mends_them():
    audit = audit_of({"dependencies": [SOUND, VULNERABLE]})
    assert audit.lines() == [
        "old 1.0: PYSEC-1 (mended in 1.1, 2.0); PYSEC-2 (mended in no version yet)",
        "2 of 2 pinned versions audited, 1 vulnerable",
    ]


def test_what_the_index_says_nothing_of_is_told_as_not_audited():
    audit = audit_of({"dependencies": [SOUND, UNKNOWN]})
    assert not audit.vulnerable and list(audit.unknown) == ["unknown"]
    count, not_audited = audit.lines()
    assert count == "1 of 2 pinned versions audited, 0 vulnerable"
    assert not_audited.startswith("not audited: 1, of which this index publishes no advisories (the index has no such")
