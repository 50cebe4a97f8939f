"""Compares the TensorBoard event files and the offline wandb run of a hone run with its metrics.jsonl.

Called by check_trackers.sh with the run's output folder.
"""

import contextlib
import io
import json
import math
import pathlib
import struct
import sys

import wandb
from tensorboard.backend.event_processing import event_accumulator
from wandb.proto import wandb_internal_pb2
from wandb.sdk.internal import datastore
from wandb.sync.sync import SyncThread

out = pathlib.Path(sys.argv[1])
rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
expected = {}
for row in rows:
    for name, value in row.items():
        if name in ("step", "run_name") or value is None:
            continue
        tracked = "eval/" + name[5:] if name.startswith("eval_") else "train/" + name
        expected.setdefault(tracked, []).append((row["step"], value))

failures = 0


def check(what, seen, wanted):
    global failures
    if seen != wanted:
        failures += 1
        print(f"trackers: {what}: saw {seen!r}, expected {wanted!r}")


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


accumulator = event_accumulator.EventAccumulator(str(out / "runs"), size_guidance={"scalars": 0, "tensors": 0})
accumulator.Reload()
check("tags of TensorBoard", sorted(accumulator.Tags()["scalars"]), sorted(expected))
for tag, values in expected.items():
    read = [(event.step, event.value) for event in accumulator.Scalars(tag)]
    check(f"TensorBoard's {tag}", read, [(step, float32(value)) for step, value in values])
check("TensorBoard's text", [t for t in accumulator.Tags()["tensors"]], ["args"])

wandb._set_internal_process(disable=True)
folders = sorted((out / "wandb").glob("offline-run-*"))
check("offline runs", len(folders), 1)
(path,) = folders[-1].glob("run-*.wandb")
store = datastore.DataStore()
store.open_for_scan(str(path))
history, run, exit_code, kinds = {}, None, None, []
while (data := store.scan_data()) is not None:
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    kind = record.WhichOneof("record_type")
    kinds.append(kind)
    if kind == "run":
        run = record.run
    if kind == "exit":
        exit_code = record.exit.exit_code
    if kind == "history":
        items = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        step = items.pop("train/global_step")
        check("wandb's step", items.pop("_step"), record.history.step.num)
        for name in ("_timestamp", "_runtime"):
            assert math.isfinite(items.pop(name))
        for name, value in items.items():
            history.setdefault(name, []).append((step, value))
check("wandb's history", history, expected)
check("wandb's run", (run.project, run.run_group, run.display_name, run.job_type), ("hone-check", "group", "trial 7", "pretrain"))
config = {item.key: json.loads(item.value_json) for item in run.config.update}
check("wandb's config", config["block_size"], 64)
check("wandb's exit code", exit_code, 0)

# Runs `wandb sync` on the folder in verbose mode without uploading, and checks that it reads every record.
said = io.StringIO()
with contextlib.redirect_stdout(said):
    SyncThread(
        sync_list=[str(folders[-1])],
        project=None,
        entity=None,
        run_id=None,
        job_type=None,
        view=True,
        verbose=False,
        mark_synced=False,
        app_url="http://localhost",
        sync_tensorboard=False,
        log_path=None,
        append=False,
        skip_console=True,
    ).run()
check("wandb sync", said.getvalue().split("\n"), [f"Record: {kind}" for kind in kinds] + ["done.", ""])
values = sum(map(len, expected.values()))
print(f"trackers: {values} values of {len(expected)} metrics in {len(rows)} rows, {len(kinds)} records: {failures} differ")
sys.exit(failures != 0)
