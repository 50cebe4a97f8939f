#!/usr/bin/env python3
"""Measures the operations of a training step in PyTorch, at the shapes of `hone bench kernels`, for comparison.

    bench/torch_kernels.py [--model llama-3.1-8b|qwen2.5-7b] [--batch_size 1] [--seq_len 8192] [--seconds 0.3]
                           [--ops attention rms_norm ...]

GEMMs run in cuBLAS, attention in cuDNN, and everything else is compiled by torch.compile. The printed names are those
of hone's operations.
"""

import argparse
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

MODELS = {  # hidden size, intermediate size, heads, KV heads, head size, vocabulary, bias of q, k and v
    "llama-3.1-8b": (4096, 14336, 32, 8, 128, 128256, False),
    "qwen2.5-7b": (3584, 18944, 28, 4, 128, 152064, True),
}


def seconds(run, budget):
    for _ in range(3):
        run()
    times = []
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def measure(runs):
        start.record()
        for _ in range(runs):
            run()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e-3 / runs

    guess = measure(1)
    runs = max(1, int(budget / 10 / guess))
    for _ in range(9):
        times.append(measure(runs))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="llama-3.1-8b", choices=MODELS)
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--seq_len", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--ops", nargs="*", default=[""], help="operations to measure, as prefixes of their names")
    options = parser.parse_args()
    hidden, inner, heads, kv_heads, head_dim, vocab, bias = MODELS[options.model]
    rows = options.batch_size * options.seq_len
    torch.manual_seed(0)

    def random(*shape, grad=False):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).mul_(0.05).requires_grad_(grad)

    def report(name, run, flops=0.0, bytes_=0.0):
        if not name.startswith(tuple(options.ops)):
            return
        taken = seconds(run, options.seconds)
        print(f"{name:42s} {taken * 1e3:10.3f} ms {flops / taken * 1e-12:9.1f} TFLOP/s {bytes_ / taken * 1e-9:8.0f} GB/s",
              flush=True)

    x = torch.empty(2**29, device="cuda", dtype=torch.bfloat16).normal_()
    y = torch.empty_like(x)
    report("copy", lambda: y.copy_(x), bytes_=2.0 * x.numel() * 2)
    del x, y

    qkv = (heads + 2 * kv_heads) * head_dim
    for name, n, k in (("qkv", qkv, hidden), ("o", hidden, heads * head_dim), ("gate and up", 2 * inner, hidden),
                       ("down", hidden, inner)):
        a, w, dy, dw = random(rows, k), random(n, k), random(rows, n), random(n, k)
        flops = 2.0 * rows * n * k
        b = random(n) if bias and name == "qkv" else None
        report(f"linear {name}", lambda: F.linear(a, w, b), flops)
        report(f"linear_input_gradient {name}", lambda: torch.mm(dy, w), flops)
        report(f"linear_weight_gradient {name}", lambda: dw.addmm_(dy.t(), a), flops)
        del a, w, dy, dw

    def heads_of(count):
        return random(options.batch_size, count, options.seq_len, head_dim, grad=True)

    q, k, v = heads_of(heads), heads_of(kv_heads), heads_of(kv_heads)
    flops = 2.0 * options.batch_size * heads * options.seq_len * (options.seq_len + 1) * head_dim
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        attend = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)  # noqa: E731
        with torch.no_grad():
            report("attention", attend, flops)
        o = attend()
        do = torch.randn_like(o)
        report("attention_backward", lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True), 2.5 * flops)
    del q, k, v, o, do

    def both(name, function, inputs, forward_bytes, backward_bytes, flops=0.0):
        """Reports a compiled function and its gradient."""
        if not name.startswith(tuple(options.ops)):
            return
        compiled = torch.compile(function)
        with torch.no_grad():
            report(name, lambda: compiled(*inputs), flops, forward_bytes)
        out = compiled(*inputs)
        out = out if isinstance(out, tuple) else (out,)
        grads = tuple(torch.randn_like(each) for each in out)
        wanted = tuple(each for each in inputs if each.requires_grad)
        report(name + "_backward", lambda: torch.autograd.grad(out, wanted, grads, retain_graph=True), 2 * flops,
               backward_bytes)

    size = 2.0 * rows * hidden
    h, r, g = random(rows, hidden, grad=True), random(rows, hidden, grad=True), random(hidden, grad=True)
    both("rms_norm", lambda x, w: F.rms_norm(x, (hidden,), w, 1e-5), (h, g), 2 * size, 3 * size)
    both("add_rms_norm", lambda x, d, w: (x + d, F.rms_norm(x + d, (hidden,), w, 1e-5)), (h, r, g), 4 * size, 4 * size)
    gate_up = random(rows, 2 * inner, grad=True)
    both("swiglu", lambda x: F.silu(x[:, :inner]) * x[:, inner:], (gate_up,), 6.0 * rows * inner, 10.0 * rows * inner)
    del gate_up

    weight = random(vocab, hidden, grad=True)
    target = torch.randint(vocab, (rows,), device="cuda")
    step = min(rows, 2048)  # rows per chunk: the logits of all rows would take gigabytes

    def head(x, w):
        return sum(F.cross_entropy(x[i:i + step] @ w.t(), target[i:i + step], reduction="sum")
                   for i in range(0, rows, step))

    compiled = torch.compile(head)
    with torch.no_grad():
        report("linear_logprobs", lambda: compiled(h, weight), 2.0 * rows * vocab * hidden)

    def forward_backward():
        torch.autograd.grad(compiled(h, weight), (h, weight))

    report("linear_logprobs, forward and backward", forward_backward, 6.0 * rows * vocab * hidden)
    del h, r

    parameter = torch.nn.Parameter(random(2 * inner, hidden).detach())
    parameter.grad = random(2 * inner, hidden)
    optimizer = torch.optim.AdamW([parameter], lr=1e-5, fused=True)
    report("adamw (bf16 states)", optimizer.step, bytes_=14.0 * parameter.numel())


if __name__ == "__main__":
    main()
