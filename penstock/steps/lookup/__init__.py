"""``lookup``: add what is known about an address or a user agent."""

from penstock.registry import built_in

component = built_in(__name__, "adds what is known about an IP address or a user agent")
