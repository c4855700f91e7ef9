"""Whether the state in a checkpoint is the one that belongs to the route's holding step and its ledger."""

from __future__ import annotations

from penstock.engine.delivery.deliver_batch import Delivery
from penstock.engine.delivery.halts import Halted
from penstock.engine.running.query_end import Cause
from penstock.engine.running.route_checkpoint import RouteCheckpoint
from penstock.engine.spark.spark_checkpoints import has_batches, has_other_state, lacks_state, next_start
from penstock.engine.stateful.state_recovery import cannot_catch_up, give_up_state, recover_state
from penstock.errors import ContradictionError


class StateCheck:
    """Asked before each query."""

    def __init__(self, delivery: Delivery, checkpoint: RouteCheckpoint, cause: Cause) -> None:
        self._delivery = delivery
        self._checkpoint = checkpoint
        self._cause = cause
        self._is_behind = False

    def note_behind(self) -> None:
        """A batch has found that the state does not belong to the ledger."""
        self._is_behind = True

    def recover(self) -> None:
        """Begin anew where the state of the checkpoint is not the one that belongs to step and ledger. Raises
        ``Halted`` if that would lose or double something."""
        delivery, plan = self._delivery, self._delivery.plan
        try:
            if has_other_state(self._checkpoint.select(), plan.state_name):
                self._check_begun_batch()
                give_up_state(delivery.ledger, delivery.log, plan)
            elif self._is_behind or (plan.holding and self._has_useless_state()):
                give_up_state(delivery.ledger, delivery.log, plan)
            self._is_behind = False
            recover_state(delivery.ledger, delivery.log, plan, has_batches(self._checkpoint.select()))
        except ContradictionError as error:
            halted = delivery.halt_on_contradiction(error)
            self._cause.note(halted)
            raise halted from error

    def _has_useless_state(self) -> bool:
        checkpoint, delivery = self._checkpoint.select(), self._delivery
        starts = next_start(checkpoint)
        return lacks_state(checkpoint) or cannot_catch_up(delivery.ledger, delivery.log, delivery.plan, starts)

    def _check_begun_batch(self) -> None:
        """Before a batch under way is given up, because another step decides from now on. It would be delivered again:
        raises ``Halted`` if the destination has it, because with the step that it was begun with it can be finished."""
        pending = self._delivery.ledger.standing(self._delivery.plan.name).pending
        if pending is not None:
            try:
                self._delivery.check_not_written(pending)
            except Halted as halted:
                self._cause.note(halted)
                raise
