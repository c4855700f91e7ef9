"""Addresses to listen on, as people write them: ``127.0.0.1:8001``, ``[::1]:8001``."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def split_address(text: str) -> tuple[str, int]:
    """``127.0.0.1:8001`` and ``[::1]:8001`` as host and port."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"'{text}' is not host:port, such as 127.0.0.1:8001 or [::1]:8001")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"'{text}' is ambiguous; write an IPv6 address in brackets: [{host}]:{port}")
    if not host:
        raise ValueError(f"'{text}' names no host; write 127.0.0.1:{port}, or 0.0.0.0:{port} to listen everywhere")
    return host, int(port)


def _checked(text: str) -> str:
    split_address(text)
    return text


Address = Annotated[str, AfterValidator(_checked)]
"""A text that ``split_address`` takes."""
