"""Payloads: what is foreign in them is text, in Slack, too; secrets are redacted; Slack's limits are kept."""

import json

from capibara_assets.automation.notifications.notices import Notice
from capibara_assets.automation.notifications.payloads import payload

NOTICE = Notice("check:r:x", "failed_checks", 1_900_000_000.0, "Check <!channel> & more", ("a\u202e <http://x|y> *b*",))


def test_json_says_what_happened_as_plain_text():
    document = payload(NOTICE, "json", "local")
    assert document["id"] == "check:r:x" and document["kind"] == "failed_checks" and document["deployment"] == "local"
    assert document["at"] == "2030-03-17T17:46:40+00:00"
    assert document["lines"] == ["a\\u202e <http://x|y> *b*"]


def test_slack_mentions_nobody_and_links_nowhere():
    document = payload(NOTICE, "slack", "local")
    header, section, context = document["blocks"]
    assert document["text"] == header["text"]["text"] == "Check &lt;!channel&gt; &amp; more"
    assert section["text"] == {"type": "plain_text", "text": "a\\u202e &lt;http://x|y&gt; *b*", "emoji": False}
    assert "2030-03-17 17:46 UTC" in context["elements"][0]["text"] and "<" not in json.dumps(document)


def test_secrets_are_redacted_in_both_shapes():
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    for shape in ("json", "slack"):
        assert token not in json.dumps(payload(Notice("i", "budget", 0.0, f"x {token}", (f"y {token}",)), shape, "d"))


def test_long_texts_and_many_lines_are_cut_where_slack_would_refuse_them():
    document = payload(Notice("i", "budget", 0.0, "&" * 200, ("<" * 4000, *["line"] * 60)), "slack", "d")
    header, first, *rest = document["blocks"]
    assert len(header["text"]["text"]) <= 150 and header["text"]["text"].endswith("&amp;…")
    assert len(first["text"]["text"]) <= 3000 and first["text"]["text"].endswith("&lt;…")
    assert len(document["blocks"]) <= 50 and rest[-2]["text"]["text"] == "and 41 more"
