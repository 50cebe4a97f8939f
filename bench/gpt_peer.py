#!/usr/bin/env python3
"""Measures the GPT-2 models of `hone bench train --full` and `--large_models` in PyTorch on one GPU, for comparison.

    gpt_peer.py [MODEL ...] [--batch_size N] [--seq_len N] [--steps N]

The model is compiled by torch.compile. Weights, gradients and activations are bfloat16, attention is
scaled_dot_product_attention, and AdamW is fused. For more than 8,192 rows the head and its loss run in chunks of rows
that are recomputed in the backward pass, because the logits of all rows would take too much memory.
Needs torch with CUDA.
"""
import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

VOCAB_SIZE = 50257
# layers, hidden size, heads, positions, intermediate size of the MLP (0: 4 x hidden), batch size, sequence length
MODELS = {
    "small": (6, 384, 6, 512, 0, 16, 512),
    "medium": (12, 768, 12, 512, 0, 16, 512),
    "large": (24, 1024, 16, 512, 0, 8, 512),
    "xl": (36, 1280, 20, 512, 0, 4, 512),
    "1.5b": (48, 1536, 12, 512, 0, 4, 512),
    "3b": (32, 2560, 20, 512, 0, 2, 512),
    "7b": (25, 4096, 32, 1024, 0, 8, 1024),
    "13b": (32, 5120, 40, 1024, 19840, 4, 1024),
}
WHOLE_LOGITS = 8192  # maximum rows for which the head computes all logits at a time


class Block(nn.Module):
    def __init__(self, hidden, heads, inner):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.ln_1(x)).chunk(3, -1))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, hidden, heads, positions, inner):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB_SIZE, hidden), nn.Embedding(positions, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, inner or 4 * hidden) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)

    def head_loss(self, h, targets):
        return F.cross_entropy(F.linear(h, self.tokens.weight).float(), targets, reduction="sum")

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        h, targets = self.norm(x)[:, :-1].flatten(0, 1), ids[:, 1:].flatten()
        if len(h) <= WHOLE_LOGITS:
            return self.head_loss(h, targets) / len(h)
        parts = zip(h.split(WHOLE_LOGITS // 2), targets.split(WHOLE_LOGITS // 2))
        return sum(checkpoint(self.head_loss, a, t, use_reentrant=False) for a, t in parts) / len(h)


def measure(name, options):
    *shape, batch, length = MODELS[name]
    batch, length = options.batch_size or batch, options.seq_len or length
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    torch.cuda.reset_peak_memory_stats()
    with torch.device("cuda"):
        model = Gpt(*shape)
    for weight in model.parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    step = torch.compile(model)
    ids = torch.randint(0, VOCAB_SIZE, (batch, length), device="cuda")

    def train():
        loss = step(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    for _ in range(5):
        loss = train()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(options.steps):
        loss = train()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - begin) / options.steps
    parameters = sum(weight.numel() for weight in model.parameters())
    rate = batch * length / seconds
    print(
        f"{name:7} {parameters / 1e6:10.2f}M {batch:3} x {length:4} {rate:10.0f} tokens/s "
        f"{6 * parameters * rate * 1e-12:7.1f} TFLOP/s {seconds * 1e3:8.2f} ms "
        f"{torch.cuda.max_memory_allocated() / 2**30:6.1f} GiB loss {loss.item():.3f}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--seq_len", type=int)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    for name in options.models:
        try:
            measure(name, options)
        except torch.OutOfMemoryError as error:
            print(f"{name:7} out of memory: {str(error).splitlines()[0]}", flush=True)
        torch.compiler.reset()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
