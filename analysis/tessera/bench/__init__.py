# SPDX-License-Identifier: Apache-2.0
"""`python -m tessera.bench`: the kernels beside PyTorch's scaled_dot_product_attention.

Both run on the same GPU in the same process, taking turns. The parts: `options` (the command line),
`cases` (what is measured), `timing` (repetitions and their statistics), `checks` (are the results
right), `gpu` (all that needs torch and a device), `record` (JSON lines, the table).
"""
