"""When a message expires, and when one that was delivered in vain may come again. Times are wall clock, in ms.

Source: AMQP 1.0 §3.2.1 (ttl), §3.2.4 (absolute-expiry-time); Artemis's manual, "Message expiry", "Delayed redelivery".
"""

from __future__ import annotations

from typing import Final

from mqbroker.config.slices import AddressSettings
from mqbroker.wire.run import Run

SPREAD_STEPS: Final = 1009  # a prime: ids that follow each other are spread over the whole range
DELAY_FACTOR_MAX: Final = 10
TIME_MS_MAX: Final = (1 << 63) - 1  # what an AMQP timestamp, the journal and annotations that we write can hold


def expires_ms(run: Run, settings: AddressSettings) -> int:
    """When the messages of a run expire, 0: never. An absolute time beats a time to live, and settings bound both."""
    ttl_ms = run.section.ttl_ms
    at_ms = run.traits.expires_ms or (run.arrived_ms + ttl_ms if ttl_ms else 0)
    if not at_ms and settings.expiry_delay >= 0:
        return run.arrived_ms + settings.expiry_delay
    if at_ms and settings.min_expiry_delay >= 0:
        at_ms = max(at_ms, run.arrived_ms + settings.min_expiry_delay)
    if settings.max_expiry_delay >= 0:
        latest_ms = run.arrived_ms + settings.max_expiry_delay
        return min(at_ms, latest_ms) if at_ms else latest_ms
    return at_ms


def redelivery_delay_ms(settings: AddressSettings, deliveries: int, message_id: int) -> int:
    """How long a message waits that was delivered `deliveries` times in vain.

    The spread that keeps messages from coming back together is taken from the message's id, so it is the same for the
    same history.
    """
    delay = float(settings.redelivery_delay)
    if not delay:
        return 0
    longest = settings.max_redelivery_delay or settings.redelivery_delay * DELAY_FACTOR_MAX
    if settings.redelivery_delay_multiplier > 1.0:
        # Above some power the bound holds anyway, and floats would overflow.
        delay *= settings.redelivery_delay_multiplier ** min(deliveries - 1, 64)
    delay = min(delay, float(longest))
    spread = settings.redelivery_collision_avoidance_factor
    if spread:
        share = (message_id * 7919 + deliveries) % SPREAD_STEPS / (SPREAD_STEPS - 1)
        delay *= 1 + spread * (2 * share - 1)
    return max(int(delay), 1)


def deliver_at_ms(run: Run) -> int:
    """When the messages of a run may be delivered, 0: at once. A time beats a delay, which counts from arrival."""
    delay_ms = run.traits.delay_ms
    return min(run.traits.deliver_at_ms or (run.arrived_ms + delay_ms if delay_ms else 0), TIME_MS_MAX)
