"""The step, held to what every step owes; and what it is for."""

from __future__ import annotations

from penstock_example.thin.config import ThinConfig
from penstock_example.thin.step import Thin

from penstock.testing.step import StepContract, batch_of, kept


class TestThin(StepContract):
    name = "thin"
    configs = ({"by": "a", "share": 0.5}, {"by": "user", "share": 1}, {"by": "x.y", "share": 0})
    changes = None


def test_all_records_of_a_value_are_kept_or_none() -> None:
    step = Thin(ThinConfig(by="user", share=0.5))
    events = [b'{"user": %d, "n": %d}' % (user, n) for n in range(3) for user in range(100)]
    users = [data.split(b",")[0] for data in kept(step.apply(batch_of(*events)))]
    assert 20 < len(set(users)) < 80
    assert all(users.count(user) == 3 for user in users)
