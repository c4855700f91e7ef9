"""The first call of a compiled function may compile it, which takes longer than any example should."""

from hypothesis import settings

settings.register_profile("compiled", deadline=None)
settings.load_profile("compiled")
