# SPDX-License-Identifier: Apache-2.0
"""`python -m tessera.plot`: figures from committed records. It needs matplotlib.

`style` is for any figure of the docs; `speed` and `sweep` draw records of the benchmark.
"""
