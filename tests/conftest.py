"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# The first call of a compiled function may compile it, which takes longer than any example should.
settings.register_profile("compiled", deadline=None)
settings.load_profile("compiled")
