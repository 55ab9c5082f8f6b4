# SPDX-License-Identifier: Apache-2.0
"""What the package raises beside Python's own errors."""
from __future__ import annotations

from typing import Any


class UnsupportedError(RuntimeError):
    """A valid request that nothing here can run: a kernel, type, configuration, card or device."""


class FindingError(RuntimeError):
    """The emulator's checks found faults in a kernel.

    ``findings`` lists them all, each a dict with ``check``, ``message`` and ``count``; the error's
    text is the first one's message.
    """

    def __init__(self, findings: list[dict[str, Any]]) -> None:
        super().__init__(findings)  # args, so that the error can be pickled
        self.findings = findings

    def __str__(self) -> str:
        if not self.findings:
            return "the emulator's checks found a fault"
        more = len(self.findings) - 1
        return f"{self.findings[0]['message']}" + (f" (and {more} more)" if more else "")
