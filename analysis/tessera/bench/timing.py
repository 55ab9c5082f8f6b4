# SPDX-License-Identifier: Apache-2.0
"""Repetitions: contenders take turns until every one's times lie close together."""
from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Callable, NamedTuple, TypeVar

import numpy as np

WARM_UP = 5
Key = TypeVar("Key", bound=Hashable)


class StopRule(NamedTuple):
    """Enough is at least `minimum` repetitions and (p80 - p20) / median <= noise of everybody."""

    noise: float = 0.02
    minimum: int = 20
    maximum: int = 200

    def enough(self, times: Sequence[Sequence[float]]) -> bool:
        return min(map(len, times)) >= self.minimum and all(map(self.quiet, times))

    def quiet(self, times: Sequence[float]) -> bool:
        return spread(times) <= self.noise


def quantile(values: Sequence[float], fraction: float) -> float:
    """Of at least one value; linear between neighbours."""
    return float(np.quantile(np.asarray(values, np.float64), fraction))


def spread(times: Sequence[float]) -> float:
    p20, median, p80 = np.quantile(np.asarray(times, np.float64), (0.2, 0.5, 0.8))
    return float((p80 - p20) / median)


def statistics(times: Sequence[float]) -> dict[str, float | int]:
    """The record's fields of times in milliseconds."""
    return {
        "median": quantile(times, 0.5),
        "p20": quantile(times, 0.2),
        "p80": quantile(times, 0.8),
        "min": min(times),
        "count": len(times),
    }


def measure(timers: dict[Key, Callable[[], float]], rule: StopRule) -> dict[Key, list[float]]:
    """The times of every repetition after the warm-up. A timer runs once and says how long it took.

    In each repetition everyone has a turn, and every time another one is first: a clock that rises
    or falls meanwhile favours nobody.
    """
    times: dict[Key, list[float]] = {name: [] for name in timers}
    order = list(timers)
    for repetition in range(WARM_UP + rule.maximum if timers else 0):
        order.append(order.pop(0))
        for name in order:
            took = timers[name]()
            if repetition >= WARM_UP:
                times[name].append(took)
        if rule.enough(list(times.values())):
            break
    return times
