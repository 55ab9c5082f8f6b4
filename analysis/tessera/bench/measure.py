# SPDX-License-Identifier: Apache-2.0
"""One case: every contender's result is checked, timed and checked again."""
from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

import tessera

from . import checks, timing
from .cases import Case, Contender
from .gpu import Call, Gpu, Launch

_CAUSAL = {"none": False, "top_left": "top-left", "bottom_right": "bottom-right"}
_LIMIT_MARGIN = 1.02  # the limit and the rate may have been measured at other clocks


@dataclass
class Outcome:
    """Of one contender in one run of a case. The fields are the record's."""

    status: str = "ok"
    reason: str | None = None
    times: list[float] = field(default_factory=list)  # milliseconds
    call_us: float | None = None
    error: dict[str, Any] | None = None  # against float64
    difference: dict[str, Any] | None = None  # against a backend of SDPA
    ran: dict[str, Any] = field(default_factory=dict)  # ours: what the report says of it
    backend: str | None = None  # of SDPA: seen by the profiler, or "as pinned" where nothing was
    kernels: list[str] = field(default_factory=list)  # of SDPA, by the profiler

    def stop(self, status: str, reason: str) -> None:
        self.status, self.reason = status, reason

    @property
    def timed(self) -> bool:
        return self.status in ("ok", "noisy")


class Running:
    """A contender that is ready to be timed."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        self.outcome = Outcome()
        self.call: Call | None = None
        self.launch: Launch | None = None
        self.result: Any = None  # what it computed before it was timed

    def attempt(self, step: Callable[[], None]) -> None:
        """Takes one step if none before has failed; a failure is this contender's alone."""
        if not self.outcome.timed:
            return
        try:
            step()
        except Exception as error:  # whatever torch or a driver raises
            self.outcome.stop(*_failure(self.contender, error))


def _failure(contender: Contender, error: Exception) -> tuple[str, str]:
    reason = f"{error}".strip() or type(error).__name__
    refused = isinstance(error, (tessera.UnsupportedError, ValueError))
    memory = type(error).__name__ == "OutOfMemoryError"
    if refused or memory or not contender.ours:
        return "refused", reason
    return "wrong", f"it failed: {type(error).__name__}: {reason}"


class Bench:
    """Measures cases with the options of the command line.

    limits: TFLOP/s that the card can multiply at most, by dtype.
    """

    def __init__(self, gpu: Gpu, options: Namespace, limits: dict[str, float | None]) -> None:
        self._gpu, self._options, self._limits = gpu, options, limits
        self._rule = timing.StopRule(options.noise / 100, options.min_repetitions,
                                     options.max_repetitions)

    def run(self, case: Case, contenders: Sequence[Contender], seed: int) -> list[Outcome]:
        """Of each contender, in their order."""
        runners = [Running(contender) for contender in contenders]
        try:
            self._run(case, runners, seed)
        except Exception as error:  # the case itself: its inputs, its reference
            for runner in runners:
                if runner.outcome.timed:
                    runner.outcome.stop(*_failure(runner.contender, error))
        return [runner.outcome for runner in runners]

    def _run(self, case: Case, runners: list[Running], seed: int) -> None:
        q, k, v = self._gpu.inputs(case, seed)
        reference = checks.Reference(case, q, k, v)
        baseline: Running | None = None  # the first that is right
        for runner in sorted(runners, key=lambda runner: runner.contender.ours):
            if runner.contender.ours:
                runner.attempt(lambda: self._prepare_ours(runner, case, q, k, v))
            else:
                runner.attempt(lambda: self._prepare_sdpa(runner, case, q, k, v))
            runner.attempt(lambda: self._check(runner, case, reference, baseline))
            if baseline is None and runner.outcome.timed and not runner.contender.ours:
                baseline = runner

        ready = [runner for runner in runners if runner.outcome.timed]
        for runner in ready:
            runner.attempt(lambda: self._time_calls(runner))
        ready = [runner for runner in ready if runner.outcome.timed]
        times = timing.measure({index: self._gpu.timer(runner.launch, self._options.warm)
                                for index, runner in enumerate(ready)}, self._rule)
        for index, runner in enumerate(ready):
            runner.outcome.times = times[index]
            runner.attempt(lambda: self._judge(runner, case))

    def _prepare_ours(self, runner: Running, case: Case, q: Any, k: Any, v: Any) -> None:
        _, kernel, arch, config, exp2 = runner.contender
        out = q.new_empty(q.shape)

        def call(out: Any = None) -> Any:
            return tessera.attention(q, k, v, causal=_CAUSAL[case.causal], out=out, kernel=kernel,
                                     arch=arch, config=config, exp2=exp2)

        runner.call = call  # like SDPA's, it makes the array of its result
        runner.launch = self._gpu.prepared(lambda: call(out), self._options.launch, out)
        runner.outcome.ran = tessera.last_report()

    def _prepare_sdpa(self, runner: Running, case: Case, q: Any, k: Any, v: Any) -> None:
        pin = runner.contender.provider.partition(":")[2]
        runner.call = self._gpu.sdpa(case, q, k, v)
        trace = self._gpu.trace(runner.call, pin)
        runner.outcome.kernels, runner.outcome.backend = trace.kernels, trace.backend or "as pinned"
        if trace.backend not in (None, pin):
            ran = ", ".join(trace.kernels) or "by its operators"
            runner.outcome.stop("fell_back", f"{trace.backend} ran: {ran}")
            return
        runner.launch = self._gpu.prepared(runner.call, self._options.launch, pin=pin)

    def _check(
        self, runner: Running, case: Case, reference: checks.Reference, baseline: Running | None
    ) -> None:
        runner.result = self._gpu.result(runner.launch).clone()
        factor = 1.0 if runner.contender.ours else checks.SDPA_FACTOR
        runner.outcome.error, passed = reference.error(runner.result, factor)
        if not passed:
            runner.outcome.stop("wrong", "max abs error {max_abs:.3g}, relative {relative:.3g} "
                                "against {against}".format(**runner.outcome.error))
        elif baseline is not None:
            largest, relative = checks.difference(runner.result, baseline.result)
            against = baseline.contender.provider
            runner.outcome.difference = {
                "max_abs": largest, "relative": relative, "against": against
            }
            if not relative <= checks.difference_allowed(case.dtype):  # NaN too
                runner.outcome.stop("wrong", f"{relative:.3g} of the norm of 64 rows, "
                                    f"{largest:.3g} at most, away from {against}")

    def _time_calls(self, runner: Running) -> None:
        runner.outcome.call_us = self._gpu.call_us(runner.call, runner.launch.pin)

    def _judge(self, runner: Running, case: Case) -> None:
        outcome, rule = runner.outcome, self._rule
        again = self._gpu.result(runner.launch)
        if not checks.same_bits(again, runner.result):
            _, relative = checks.difference(again, runner.result)
            if runner.contender.ours or not relative <= checks.difference_allowed(case.dtype):
                outcome.stop("wrong", "after it was timed, the same input gave other bits, "
                             f"{relative:.3g} of the norm of 64 rows away")
                return
        rate = tflops(case, timing.quantile(outcome.times, 0.5))
        limit = self._limit(runner.contender, case.dtype)
        if limit is not None and not rate <= _LIMIT_MARGIN * limit:
            outcome.stop("impossible", f"{rate:.0f} TFLOP/s, above the limit of {limit:.0f}")
        elif not rule.quiet(outcome.times):
            outcome.stop("noisy", f"(p80 - p20) / median is {timing.spread(outcome.times):.1%} "
                         f"after {len(outcome.times)} repetitions")

    def _limit(self, contender: Contender, dtype: str) -> float | None:
        """TFLOP/s. SDPA may multiply by other units than our kernels do: wgmma, f32 by TF32."""
        known = [limit for limit in self._limits.values() if limit is not None]
        if contender.ours:
            return self._limits.get(dtype)
        return 2 * max(known) if known else None


def tflops(case: Case, ms: float) -> float:
    return case.flop / ms / 1e9
