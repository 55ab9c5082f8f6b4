#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The machine code of every CUDA instance, read with cuobjdump; no GPU is needed.

Tensor-core instructions can vanish silently with a compiler version, and a spill costs speed silently.
So for every row of kernels/configs.def: the instances are there, no more and no fewer; their tensor-core
instructions are as many as the tiling says; no local memory but what the row allows (soft exp2, which is
there to compare bits, may spill); registers and shared memory leave room for the blocks that the row
claims for a multiprocessor.

usage: codegen_test.py OBJECT... [--sweep]     the objects of the targets tessera_cuda_sm_*; --sweep: the
rows of kernels/sweep.def are among them
"""
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REGISTERS = 65536  # of a multiprocessor, on every arch here; a warp gets them in units of 8 a thread
# Shared memory of a multiprocessor, and what every block takes of it beside its own (CUDA programming guide,
# technical specifications; from compute capability 8.0 on the system takes 1 KB a block).
SHARED = {"sm_75": (64 * 1024, 0), "sm_89": (100 * 1024, 1024), "sm_90": (228 * 1024, 1024)}
MMA = {"sm_75": ("HMMA.1688.F32", 8), "sm_89": ("HMMA.16816.F32", 16), "sm_90": ("HMMA.16816.F32", 16)}
EXP2 = {"soft": 0, "hardware": 1}  # enum Exp2


# ---- what the tables ask for


def rows(file, macro):
    for line in (ROOT / "kernels" / file).read_text().splitlines():
        if match := re.match(rf"{macro}\((.*)\)$", line.rstrip()):
            yield [field.strip() for field in re.split(r",(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", match[1])]


class Instance:
    """One (row, dtype, head_dim, exp2): what its machine code must look like."""

    def __init__(self, row, kind, dtype, head_dim, exp2):
        self.kernel, self.arch, config = row[:3]
        self.rows, self.cols, self.depth, self.warps, self.stages = map(int, row[5:10])
        self.q, self.blocks, self.local = row[10], int(row[11]), int(row[12])
        self.kind, self.dtype, self.head_dim, self.exp2 = kind, dtype, head_dim, exp2
        unit = lambda head_dims: [self.kernel, self.arch, dtype, *[f"d{d}" for d in head_dims if d], config]
        self.object = re.sub("[/-]", "_", "/".join(unit(map(int, row[4].split("|"))))) + ".cu.o"
        self.key = "/".join(unit([head_dim]) + [exp2] * (kind == "attention"))

    def is_named(self, function):
        """Whether a mangled name is this instance's: an object holds those of all head_dims and exp2 modes."""
        return (f"4ArchE{self.arch[3:]}ELi{self.head_dim}E" in function and
                (self.kind != "attention" or f"4Exp2E{EXP2[self.exp2]}E" in function))

    def mma(self):
        """Tensor-core instructions. An instruction is 16 x 8 x k; a step of depth 16 is two with k = 8."""
        if self.dtype == "f32" or self.kind == "weighted_sum":
            return 0
        steps = 16 // MMA[self.arch][1]
        warp_rows = self.rows // self.warps // 16
        if self.kind == "matmul":
            return warp_rows * (self.cols // 8) * (self.depth // 16) * steps
        depth = self.head_dim // 16
        if self.arch == "sm_75" and self.q != "registers" and warp_rows > 1:  # a loop, two steps at a time
            depth = min(depth, 2)
        score_cols = output_cols = self.cols
        if self.kernel == "flash_forward" and self.stages == 2:  # full tiles, again where that fails; edge tiles
            edge = self.cols if self.q == "registers" else min(self.cols, 32)
            score_cols, output_cols = 2 * self.cols + edge, self.cols + edge
        scores = warp_rows * (score_cols // 8) * depth
        output = warp_rows * (self.head_dim // 8) * (output_cols // 16)
        return (scores + output) * steps


    def shared(self):
        """Bytes of shared memory of an attention kernel: Q, the stages of K and V, flash_forward's fp32 P."""
        size = {"f32": 4, "f16": 2, "bf16": 2}[self.dtype]
        tile = lambda rows, cols: -(-rows * cols * size // 1024) * 1024
        p = tile(self.rows, self.cols) if self.kernel == "flash_forward" and self.dtype == "f32" else 0
        return tile(self.rows, self.head_dim) + 2 * self.stages * tile(self.cols, self.head_dim) + p


def expected(tables):
    kinds = {row[0]: row[3] for row in rows("registry.def", "TESSERA_KERNEL")}
    for row in (row for table in tables for row in rows(table, "TESSERA_CONFIG")):
        kind = kinds[row[0]]
        if "cuda" in row[14].split("|"):
            for dtype in row[3].split("|"):
                for head_dim in row[4].split("|"):
                    for exp2 in EXP2 if kind == "attention" else ["soft"]:
                        yield Instance(row, kind, dtype, int(head_dim), exp2)


# ---- what was built


def find_cuobjdump():
    """Its path, with nvdisasm (which -sass calls) on PATH; or None. The CUDA toolkit has both, and so have
    the PyPI packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm."""
    folders = [folder for path in sys.path for folder in Path(path).glob("nvidia/*/bin")]
    os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], "/usr/local/cuda/bin", *map(str, folders)])
    return shutil.which("nvdisasm") and shutil.which("cuobjdump")


def functions(cuobjdump, path):
    """{function: (arch, registers, local bytes, local instructions, [tensor-core opcodes])} of an object."""

    def dump(*flags):
        return subprocess.run([cuobjdump, *flags, path], check=True, capture_output=True, text=True).stdout

    found, arch, name = {}, None, None
    usage = dict(re.findall(r"Function (\S+):\n\s*(REG:.*)", dump("--dump-resource-usage")))
    for line in dump("--dump-sass").splitlines():
        if match := re.match(r"\s*code for (\S+)", line):
            arch = match[1]
        elif match := re.match(r"\s*Function : (\S+)", line):
            name = match[1]
            use = {key: int(value) for key, value in re.findall(r"(\w+)(?:\[\d+\])?:(\d+)", usage[name])}
            found[name] = [arch, use["REG"], use["STACK"] + use["LOCAL"], 0, []]
        elif match := re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?\w+\s+)?(\w[\w.]*)", line):
            if match[1].startswith(("LDL", "STL")):
                found[name][3] += 1
            if match[1].split(".")[0].endswith("MMA"):  # HFMA2.MMA is a move
                found[name][4].append(match[1])
    return found


def faults(instance, code):
    arch, registers, local, local_instructions, mma = code
    opcode = MMA[instance.arch][0] + (".BF16" if instance.dtype == "bf16" else "")
    allocated = -(-registers // 8) * 8 * 32 * instance.warps * instance.blocks
    if arch != instance.arch:
        yield f"code for {arch}"
    if mma != [opcode] * instance.mma():
        counts = {name: mma.count(name) for name in sorted(set(mma))}
        yield f"tensor-core instructions {counts or 'none'}, expected {instance.mma()} of {opcode}"
    if instance.exp2 != "soft" and (local > instance.local or local_instructions and not instance.local):
        yield f"{local} bytes of stack or local memory, {local_instructions} instructions on it"
    if registers > 255 or allocated > REGISTERS:
        yield f"{registers} registers a thread, {allocated} for {instance.blocks} blocks, there are {REGISTERS}"
    if instance.kind == "attention":
        there, system = SHARED[instance.arch]
        if instance.blocks * (instance.shared() + system) > there:
            yield f"{instance.shared()} bytes of shared memory, {instance.blocks} blocks do not fit in {there}"


def main():
    tables = ["configs.def"] + ["sweep.def"] * ("--sweep" in sys.argv)
    objects = {Path(path).name: path for path in sys.argv[1:] if path != "--sweep"}
    if not objects:
        print("SKIPPED: this build has no CUDA part")
        return 0
    cuobjdump = find_cuobjdump()
    if not cuobjdump:
        print("SKIPPED: cuobjdump and nvdisasm were not found "
              "(pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm)")
        return 0

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = dict(zip(objects, pool.map(lambda path: functions(cuobjdump, path), objects.values())))
    instances, failed = list(expected(tables)), 0
    print(f"{'instance':48} registers  stack  mma")
    for instance in instances:
        code = [c for name, c in built.get(instance.object, {}).items() if instance.is_named(name)]
        if len(code) != 1:
            failed += 1
            print(f"{instance.key:48} FAILED: found {len(code)} times in {instance.object}")
            continue
        print(f"{instance.key:48} {code[0][1]:9}  {code[0][2]:5}  {len(code[0][4]):3}")
        for fault in faults(instance, code[0]):
            failed += 1
            print(f"    FAILED: {fault}")
    count = sum(map(len, built.values()))
    if count != len(instances):
        failed += 1
        print(f"FAILED: the objects hold {count} kernels, the table {len(instances)}")
    print(f"{len(instances)} instances, {failed} faults")
    return 1 if failed else 0


sys.exit(main())
