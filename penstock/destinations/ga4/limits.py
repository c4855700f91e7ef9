"""The limits of Google Analytics, as functions that say what is wrong. It answers 204 to anything and silently drops
what breaks a rule, so every rule is checked here.

Sources: the protocol's reference, "Limitations", "Reserved names" and "Use cases" (no time after that of the request),
the event collection limits, and its validation server.
"""

from __future__ import annotations

import re
from collections.abc import Collection

MAX_EVENTS = 25
"""Of one request."""
MAX_BODY = 130_000
MAX_PARAMS = 25
MAX_NAME = 40
MAX_VALUE = 100
MAX_ITEMS = 200
MAX_CUSTOM_ITEM_PARAMS = 27
"""Of one item, beside those that Google Analytics knows."""
MAX_PROPERTIES = 25
MAX_PROPERTY_NAME = 24
MAX_PROPERTY_VALUE = 36
MAX_USER_ID = 256
MAX_AGE = 72 * 3600
"""Seconds by which an event may be dated back."""
MAX_AHEAD = 300
"""Seconds by which the clock of who dated an event may be ahead: it counts as of now. None may lie in the future."""

LONGER_VALUES = {"page_title": 300, "page_referrer": 420, "page_location": 1_000}
RESERVED_PREFIXES = ("_", "firebase_", "ga_", "google_", "gtag.")
RESERVED_EVENTS = frozenset((
    "ad_activeview", "ad_click", "ad_exposure", "ad_query", "ad_reward", "adunit_exposure", "app_background",
    "app_clear_data", "app_exception", "app_install", "app_remove", "app_store_refund",
    "app_store_subscription_cancel", "app_store_subscription_convert", "app_store_subscription_renew", "app_update",
    "app_upgrade", "dynamic_link_app_open", "dynamic_link_app_update", "dynamic_link_first_open", "error",
    "firebase_campaign", "firebase_in_app_message_action", "firebase_in_app_message_dismiss",
    "firebase_in_app_message_impression", "first_open", "first_visit", "in_app_purchase", "notification_dismiss",
    "notification_foreground", "notification_open", "notification_receive", "notification_send", "os_update",
    "screen_view", "session_start", "user_engagement",
))  # fmt: skip
ITEM_PARAMS = frozenset((
    "item_id", "item_name", "affiliation", "coupon", "creative_name", "creative_slot", "currency", "discount", "index",
    "item_brand", "item_category", "item_category2", "item_category3", "item_category4", "item_category5",
    "item_list_id", "item_list_name", "item_variant", "location_id", "price", "promotion_id", "promotion_name",
    "quantity",
))  # fmt: skip
RESERVED_PARAMS = frozenset(("firebase_conversion",))
RESERVED_PROPERTIES = frozenset(
    ("first_open_time", "first_visit_time", "last_deep_link_referrer", "user_id", "first_open_after_install")
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


def event_name(name: str) -> str | None:
    return _name("event", name, MAX_NAME, RESERVED_EVENTS)


def param_name(name: str) -> str | None:
    return _name("parameter", name, MAX_NAME, RESERVED_PARAMS)


def property_name(name: str) -> str | None:
    return _name("user property", name, MAX_PROPERTY_NAME, RESERVED_PROPERTIES)


def param_value(name: str, value: object, max_value: int) -> str | None:
    longest = max(max_value, LONGER_VALUES.get(name, 0))
    if len(str(value)) > longest:
        return f"the parameter '{name}' has {len(str(value))} characters; {longest} are allowed"
    return None


def item_count(items: int) -> str | None:
    return f"there are {items} items; {MAX_ITEMS} are allowed" if items > MAX_ITEMS else None


def item_params(names: Collection[str]) -> str | None:
    custom = len(set(names) - ITEM_PARAMS)
    if custom > MAX_CUSTOM_ITEM_PARAMS:
        return f"an item has {custom} parameters of its own; {MAX_CUSTOM_ITEM_PARAMS} are allowed"
    return None


def property_value(name: str, value: object) -> str | None:
    if len(str(value)) > MAX_PROPERTY_VALUE:
        return f"the user property '{name}' has {len(str(value))} characters; {MAX_PROPERTY_VALUE} are allowed"
    return None


def param_count(params: int) -> str | None:
    return f"it has {params} parameters; {MAX_PARAMS} are allowed" if params > MAX_PARAMS else None


def _name(what: str, name: str, longest: int, reserved: frozenset[str]) -> str | None:
    if name in reserved or name.startswith(RESERVED_PREFIXES):
        return f"'{name[:80]}' is reserved and no name of {_a(what)}"
    if _NAME.fullmatch(name) is None:
        return f"'{name[:80]}' is no name of {_a(what)}: letters, digits and _ from a letter on"
    if len(name) > longest:
        return f"'{name[:80]}' has {len(name)} characters; the name of {_a(what)} has at most {longest}"
    return None


def _a(what: str) -> str:
    return f"an {what}" if what[0] in "aeio" else f"a {what}"
