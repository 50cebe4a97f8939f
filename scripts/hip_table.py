#!/usr/bin/env python3
"""Prints which operations have kernels in a build for HIP, as a table of docs/hip.md; --check FILE compares the block.

The table follows from the sources: what an operation's folder includes, and what src/backend/hip/left_out.txt names.
  same     the kernels of the CUDA backend
  simple   kernels without matrix units, where the CUDA backend has others that use them or PTX
  library  GEMMs by rocBLAS, where the CUDA backend uses cuBLASLt; kernels around them are the same
  large    the kernels of the CUDA backend, which refuse a GPU with too little shared memory, such as gfx942
  none     no kernel: the operation cannot run
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
OPS = SOURCE / "ops"
# Headers of PTX for tensor cores, bulk copies and barriers in memory.
CUDA_ONLY = {f"backend/cuda/{name}.cuh" for name in ("mma", "wgmma", "bulk_copy", "tile_store")}
BEGIN = "<!-- operations: written by scripts/hip_table.py -->"
END = "<!-- end of operations -->"


def left_out():
    lines = (SOURCE / "backend/hip/left_out.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def included(path, seen):
    """The project's files that a file includes, directly or indirectly."""
    if path in seen or not (SOURCE / path).exists():
        return
    seen.add(path)
    for name in re.findall(r'^#include "([^"]+)"', (SOURCE / path).read_text(), re.MULTILINE):
        included(name, seen)


def form(folder, absent):
    sources = sorted(p for p in folder.iterdir() if p.suffix == ".cu" or p.name == "cuda.cpp")
    names = [str(p.relative_to(OPS)) for p in sources]
    main = [name for name in names if re.search(r"/cuda\.(cu|cpp)$", name)]
    if not main:
        return None
    if main[0] in absent:
        return "none"
    closure = set()
    for name in names:
        included("ops/" + name, closure)
    text = "".join(p.read_text() for p in sources)
    if "cublas().gemm" in text or "run_linear_and_swiglu" in text:
        return "library"
    if " bytes of shared memory; " in text:
        return "large"
    if CUDA_ONLY & closure or absent & set(names):
        return "simple"
    return "same"


def table():
    absent = left_out()
    rows = {"same": [], "simple": [], "library": [], "large": [], "none": []}
    for folder in sorted(OPS.iterdir()):
        if folder.is_dir():
            found = form(folder, absent)
            if found:
                rows[found].append(folder.name)
    lines = ["| form on gfx942 and gfx950 | operations |", "|---|---|"]
    lines += [f"| {name} ({len(operations)}) | {', '.join(operations)} |" for name, operations in rows.items()]
    return "\n".join(lines)


def main():
    if len(sys.argv) == 1:
        print(table())
        return 0
    if len(sys.argv) != 3 or sys.argv[1] not in ("--check", "--write"):
        print("usage: hip_table.py [--check FILE | --write FILE]", file=sys.stderr)
        return 2
    path = pathlib.Path(sys.argv[2])
    text = path.read_text()
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        print(f"{path}: there is no block between '{BEGIN}' and '{END}'", file=sys.stderr)
        return 1
    block = f"{BEGIN}\n{table()}\n"
    if sys.argv[1] == "--write":
        path.write_text(text[:begin] + block + text[end:])
    elif text[begin:end] != block:
        print(f"{path}: the table of operations is stale: run scripts/hip_table.py --write {path}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
