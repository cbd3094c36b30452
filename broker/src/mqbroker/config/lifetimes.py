"""When a certificate has little time left: one rule for what brokers log and answer, mqctl shows and renews.

A certificate that is good for a quarter of a year or longer is judged by days alone. One that was made for a shorter
life would be little from its first day on, so it is judged by what part of its life is left.
"""

from __future__ import annotations

DAY_S = 86_400
WARNING_DAYS, ERROR_DAYS = 30, 7
WARNING_PART, ERROR_PART = 3, 12  # of a life, from its end


def warning_s(life_s: float, days: int = WARNING_DAYS) -> float:
    """Less left than this many seconds is little. `days`: at most so many."""
    return min(days * DAY_S, life_s / WARNING_PART)


def error_s(life_s: float) -> float:
    """Less left than this many seconds is an error."""
    return min(ERROR_DAYS * DAY_S, life_s / ERROR_PART)
