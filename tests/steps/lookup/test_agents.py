"""User agents are taken apart, and bots are told from people."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.steps.lookup.user_agents import AgentFacts

FACTS = AgentFacts()

CHROME = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/120.0.6099.71 Safari/537.36"
)
IPHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_2 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
    "Version/17.2 Mobile/15E148 Safari/604.1"
)
CUBOT = (
    "Mozilla/5.0 (Linux; Android 10; CUBOT NOTE 20) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/99.0.4844.73 Mobile Safari/537.36"
)


@pytest.mark.parametrize(
    ("agent", "facts"),
    [
        (
            CHROME,
            {
                "ua_family": "Chrome", "ua_version": "120.0.6099.71", "os_family": "Windows", "os_version": "10",
                "bot": False,
            },
        ),
        (
            IPHONE,
            {
                "ua_family": "Mobile Safari", "ua_version": "17.2", "os_family": "iOS", "os_version": "17.2",
                "device_family": "iPhone", "device_brand": "Apple", "device_model": "iPhone", "bot": False,
            },
        ),
        ("curl/8.1.2", {"ua_family": "curl", "ua_version": "8.1.2", "bot": False}),
        ("garbage", {}),
        ("", {}),
        ("\0", {}),
        ("🦊" * 100, {}),
    ],
)  # fmt: skip
def test_an_agent_is_taken_apart(agent: str, facts: dict[str, Any]) -> None:
    assert FACTS.about(agent) == facts


@pytest.mark.parametrize(
    ("agent", "bot"),
    [
        ("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)", True),
        ("Mozilla/5.0 (compatible; Baiduspider/2.0; +http://www.baidu.com/search/spider.html)", True),
        ("Mozilla/5.0 (compatible; Yahoo! Slurp; http://help.yahoo.com/help/us/ysearch/slurp)", True),
        ("facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)", True),
        (CHROME.replace("Chrome/", "HeadlessChrome/"), True),
        (CHROME + " OurCrawler", True),
        ("Scrapy/2.11 (+https://scrapy.org)", True),
        (CHROME, False),
        (IPHONE, False),
        (CUBOT, False),
        (CUBOT + " somebot", True),
    ],
)
def test_bots_are_told_from_people(agent: str, bot: bool) -> None:
    assert FACTS.about(agent)["bot"] is bot


@settings(deadline=None)
@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    facts = FACTS.about(text.encode("utf-8", "replace").decode())
    assert set(facts) <= set(AgentFacts.keys)
    assert not facts or "bot" in facts
