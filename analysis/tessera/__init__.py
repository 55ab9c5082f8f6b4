# SPDX-License-Identifier: Apache-2.0
"""Attention kernels written for the GPU, run there or bit for bit on the CPU.

>>> import tessera
>>> q, k, v = (tessera.random((1, 2, 64, 32), "float16", tensor=i) for i in range(3))
>>> o, lse = tessera.attention(q, k, v, causal=True, return_lse=True)
>>> tessera.last_report()["kernel"]
'flash_forward'
"""
from ._attention import attention, kernels, last_report, random
from ._errors import FindingError, UnsupportedError

__version__ = "0.1.0"
__all__ = ["FindingError", "UnsupportedError", "attention", "kernels", "last_report", "random"]
