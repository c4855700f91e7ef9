"""What the config of a destination says that it offers is what its session does."""

from __future__ import annotations

import importlib

import pytest

from penstock.config.component import Offer
from penstock.destinations.sql.config import SqlConfig
from penstock.destinations.sql.session import Session
from penstock.registry import Component, Kind, components

CARDS = [card for card in components(Kind.DESTINATION).values() if issubclass(card.config_class(), SqlConfig)]
DONE_BY = {Offer.MIRROR: "open_mirror", Offer.REMAP: "open_unmapped"}


@pytest.mark.parametrize("offer", Offer)
@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_a_destination_does_what_its_config_offers_and_no_more(card: Component, offer: Offer) -> None:
    module = importlib.import_module(f"penstock.destinations.{card.name}.session")
    (session,) = [
        found
        for found in vars(module).values()
        if isinstance(found, type) and found.__module__ == module.__name__ and issubclass(found, Session)
    ]
    assert (DONE_BY[offer] in vars(session)) == (offer in card.config_class().offers)
