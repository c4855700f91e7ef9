"""Compiles what maps plain events together, before the first of them comes."""

from __future__ import annotations

import numpy as np

from penstock.destinations.dataset.event_mapping import EventMapper
from penstock.destinations.dataset.plain_events import PlainEvents
from penstock.record import Record, entries, placed

_EVENTS = (
    b'{"s":"x","n":1.5,"o":{"a":[1,{"b":"\\u00e9"}]},"sev":"info","thread":"t","logfile":"/x"}',
    b'{"_timestamp":"2026-01-01T00:00:00.000000001Z","s":"y","a":[{"b":1,"b":2}],"x":"\\ud83d\\ude00"}',
)


def warm_up() -> None:
    batch = placed(entries(Record(event, namespace="web") for event in _EVENTS), 0, 0)
    PlainEvents(EventMapper(("s",), "host", id_attribute="id", most=10_000)).map(batch, np.ones(len(_EVENTS), np.bool_))
