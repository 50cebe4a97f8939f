#!/usr/bin/env python3
"""Measures decoding of a Llama shape in bf16 on the CPU by hone and by llama.cpp, in turns.

    llama_peer.py CONFIG [--hone PROGRAM] [--streams 1,8] [--context N] [--steps N] [--threads N] [--turns N] [--gguf FILE]

CONFIG is a config.json of model_type llama. Both programs have random weights of this shape, prompts of random tokens
and the same threads. A step is one token of each stream; the steps lie around `--context` tokens of prompt and answer.
hone's steps include sampling, those of llama.cpp end with the logits. Prints tokens per second of both for each turn,
then the medians and their ratio.
Needs numpy, gguf and llama-cpp-python.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import gguf
import numpy


def random_matrix(rng, rows, columns):
    """Normal numbers with deviation 0.02, in bf16 as 16-bit words: the upper halves of floats."""
    values = rng.standard_normal((rows, columns), dtype=numpy.float32) * 0.02
    return (values.view(numpy.uint32) >> 16).astype(numpy.uint16)


def write_gguf(path, shape):
    rng = numpy.random.default_rng(0)
    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    heads, kv_heads = shape["num_attention_heads"], shape["num_key_value_heads"]
    head_dim = shape.get("head_dim") or hidden // heads
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(shape["num_hidden_layers"])
    writer.add_context_length(shape["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(shape.get("rope_theta", 10000.0))
    writer.add_layer_norm_rms_eps(shape["rms_norm_eps"])
    writer.add_vocab_size(shape["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("no_vocab")

    def matrix(name, rows, columns):
        words = random_matrix(rng, rows, columns)
        writer.add_tensor(name, words.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)

    def norm(name):
        writer.add_tensor(name, numpy.ones(hidden, dtype=numpy.float32))

    matrix("token_embd.weight", shape["vocab_size"], hidden)
    norm("output_norm.weight")
    if not shape.get("tie_word_embeddings"):
        matrix("output.weight", shape["vocab_size"], hidden)
    for layer in range(shape["num_hidden_layers"]):
        prefix = f"blk.{layer}."
        norm(prefix + "attn_norm.weight")
        norm(prefix + "ffn_norm.weight")
        matrix(prefix + "attn_q.weight", heads * head_dim, hidden)
        matrix(prefix + "attn_k.weight", kv_heads * head_dim, hidden)
        matrix(prefix + "attn_v.weight", kv_heads * head_dim, hidden)
        matrix(prefix + "attn_output.weight", hidden, heads * head_dim)
        matrix(prefix + "ffn_gate.weight", inner, hidden)
        matrix(prefix + "ffn_up.weight", inner, hidden)
        matrix(prefix + "ffn_down.weight", hidden, inner)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    """A model that stays loaded; each measurement has a context of its number of streams."""

    def __init__(self, path, vocab, threads):
        import llama_cpp
        self.api, self.vocab, self.threads = llama_cpp, vocab, threads
        self.silence = llama_cpp.llama_log_callback(lambda *_: None)  # kept alive for the library
        llama_cpp.llama_log_set(self.silence, None)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama_peer: llama.cpp does not load {path}")

    def decode(self, context, batch, tokens, position, streams, logits):
        """Decodes the next tokens [count][streams] of all streams, from `position` on."""
        batch.n_tokens = len(tokens) * len(streams)
        for i, row in enumerate(tokens):
            for s in streams:
                at = i * len(streams) + s - streams[0]
                batch.token[at] = int(row[s - streams[0]])
                batch.pos[at] = position + i
                batch.n_seq_id[at] = 1
                batch.seq_id[at][0] = s
                batch.logits[at] = logits
        if self.api.llama_decode(context, batch) != 0:
            sys.exit("llama_peer: llama_decode failed")

    def tokens_per_second(self, streams, length, steps):
        api = self.api
        params = api.llama_context_default_params()
        prompt = length - steps // 2
        params.n_ctx = streams * (prompt + steps + 16)
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = streams
        params.n_threads = params.n_threads_batch = self.threads
        context = api.llama_init_from_model(self.model, params)
        if not context:
            sys.exit("llama_peer: llama.cpp makes no context")
        batch = api.llama_batch_init(512, 0, 1)
        rng = numpy.random.default_rng(1)
        for s in range(streams):
            for begin in range(0, prompt, 512):
                count = min(512, prompt - begin)
                self.decode(context, batch, rng.integers(self.vocab, size=(count, 1)), begin, [s], False)
        everyone = list(range(streams))
        warm = 4
        ids = rng.integers(self.vocab, size=(warm + steps, streams))
        for i in range(warm):
            self.decode(context, batch, ids[i:i + 1], prompt + i, everyone, True)
        api.llama_synchronize(context)
        start = time.perf_counter()
        for i in range(warm, warm + steps):
            self.decode(context, batch, ids[i:i + 1], prompt + i, everyone, True)
            api.llama_synchronize(context)
        rate = streams * steps / (time.perf_counter() - start)
        api.llama_batch_free(batch)
        api.llama_free(context)
        return rate


def hone_decode(options, streams):
    """Returns hone's tokens per second and its line, which has the share of the rate at which memory is read."""
    with tempfile.TemporaryDirectory() as folder:
        results = pathlib.Path(folder) / "decode.json"
        run = subprocess.run(
            [options.hone, "bench", "decode", "--model", options.config, "--streams", str(streams), "--contexts",
             str(options.context), "--steps", str(options.steps), "--device", "cpu", "--json", str(results)],
            env={**os.environ, "OMP_NUM_THREADS": str(options.threads)}, capture_output=True, text=True)
        if run.returncode != 0:
            sys.exit(f"llama_peer: {run.stderr.strip()}")
        rows = json.loads(results.read_text())
    return next(row["figure"] for row in rows if row["unit"] == "tokens/s"), run.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("config")
    parser.add_argument("--hone", default="build/hone")
    parser.add_argument("--streams", default="1,8")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--gguf", help="file to write the weights to; kept, and read if it exists")
    options = parser.parse_args()
    shape = json.loads(pathlib.Path(options.config).read_text())
    if shape["model_type"] != "llama":
        sys.exit(f"llama_peer: expected model_type llama, saw {shape['model_type']}")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(options.gguf or pathlib.Path(folder) / "weights.gguf")
        if not path.exists():
            write_gguf(path, shape)
        peer = LlamaCpp(path, shape["vocab_size"], options.threads)
        for streams in map(int, options.streams.split(",")):
            ours, theirs = [], []
            for turn in range(options.turns):
                rate, line = hone_decode(options, streams)
                ours.append(rate)
                theirs.append(peer.tokens_per_second(streams, options.context, options.steps))
                print(f"streams {streams}, turn {turn + 1}: hone {ours[-1]:.1f}, llama.cpp {theirs[-1]:.1f} tokens/s")
                print(f"  {line}", flush=True)
            ratio = statistics.median(ours) / statistics.median(theirs)
            print(f"streams {streams}: hone {statistics.median(ours):.1f}, llama.cpp {statistics.median(theirs):.1f} "
                  f"tokens/s, ratio {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
