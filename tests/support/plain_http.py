"""Requests to this machine, without reading the list of public certificate authorities: 20 ms for every request."""

from __future__ import annotations

import os
import ssl
from functools import partial

import httpx

NO_AUTHORITIES = ssl.create_default_context(capath=os.devnull)

get = partial(httpx.get, verify=NO_AUTHORITIES)
post = partial(httpx.post, verify=NO_AUTHORITIES)
