"""Property tests are bounded by their number of examples, never by the speed of the machine they run on."""

from hypothesis import HealthCheck, settings

settings.register_profile("unit", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")
