"""Settings for the unit tests: example counts that keep the whole folder quick, and no deadlines, since machines are shared."""

from hypothesis import settings

settings.register_profile("unit", max_examples=100, deadline=None)
settings.load_profile("unit")
