"""Checks the trace of a profile against its report. scripts/check_trace.sh runs this.
  check_trace.py FOLDER   FOLDER: the output_dir of hone profile
First the events are read as they are in the file, then by Perfetto's trace processor, if it is available."""
import collections
import json
import os
import pathlib
import sys

FOLDER = pathlib.Path(sys.argv[1])
SUMMARY = json.loads((FOLDER / "kernel_summary.json").read_text())
TRACE = FOLDER / "chrome_trace.json"
STEPS = SUMMARY["num_steps"]
ROUNDING = 1e-6  # ms: the trace has whole nanoseconds, and an operation runs at most this many times a step


def same(what, seen, wanted, calls):
    error = abs(seen - wanted)
    assert error <= ROUNDING * max(calls, 1) + 1e-9 * abs(wanted), f"{what}: {seen} ms in the trace, {wanted} in the report"


def check_sums(source, steps, categories, phases, operations):
    """steps: their ms. The others: name -> ms of all steps. operations: number of them."""
    calls = operations / STEPS
    same("the steps", sum(steps) / STEPS, SUMMARY["step_ms"], calls)
    between = SUMMARY["between_ms"]
    for category in SUMMARY["categories"]:
        wanted = category["ms"] - (between if category["name"] == "other" else 0)
        same(category["name"], categories.get(category["name"], 0) / STEPS, wanted, calls)
    wanted = collections.Counter()
    for kernel in SUMMARY["kernels"]:
        wanted[kernel["phase"]] += kernel["ms"]
    assert set(phases) == set(wanted), (phases, wanted)
    for phase, ms in wanted.items():
        same(phase, phases[phase] / STEPS, ms, calls)
    assert operations == round(sum(kernel["runs"] for kernel in SUMMARY["kernels"]) * STEPS), operations
    print(f"trace: {source}: {len(steps)} steps, {operations} operations, {len(categories)} categories agree with the report")


def check_file():
    events = json.loads(TRACE.read_text())["traceEvents"]
    rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            spans[rows[event["tid"]]].append(event)
    categories, phases = collections.Counter(), collections.Counter()
    for event in spans["operations"]:
        categories[event["cat"]] += event["dur"] / 1e3
        phases[event["args"]["phase"]] += event["dur"] / 1e3
    for name, row in spans.items():  # spans of a row do not overlap
        end = 0.0
        for event in row:
            assert event["ts"] >= end - 1e-4, (name, event)
            end = event["ts"] + event["dur"]
    check_sums("file", [event["dur"] / 1e3 for event in spans["steps"]], categories, phases, len(spans["operations"]))
    kinds = collections.Counter(event["ph"] for event in events)
    assert kinds["s"] == kinds["f"] == len(spans.get("host launches", [])), kinds
    return kinds


def processor():
    """Perfetto's trace processor with the trace, or None with the reason."""
    binary = os.environ.get("TRACE_PROCESSOR")
    try:
        from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig
        return TraceProcessor(trace=str(TRACE), config=TraceProcessorConfig(bin_path=binary)), ""
    except Exception as error:  # of the import or the download: of many kinds
        return None, str(error).split("\n")[0]


def check_processor(trace, kinds):
    of_row = ("from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) "
              "where thread.name = '{}'")
    pairs = lambda key, name: {row.key: row.ms for row in trace.query(
        f"select {key} as key, sum(slice.dur) / 1e6 as ms {of_row.format(name)} group by key")}
    steps = [row.ms for row in trace.query(f"select slice.dur / 1e6 as ms {of_row.format('steps')}")]
    count = [row.n for row in trace.query(f"select count(*) as n {of_row.format('operations')}")][0]
    phase = "extract_arg(slice.arg_set_id, 'args.phase')"
    check_sums("trace processor", steps, pairs("slice.category", "operations"), pairs(phase, "operations"), count)
    counters = {row.name: row.n for row in trace.query(
        "select counter_track.name as name, count(*) as n from counter join counter_track on counter.track_id = counter_track.id group by 1")}
    assert any(name.startswith("bytes in use") for name in counters), counters
    flows = [row.n for row in trace.query("select count(*) as n from flow")][0]
    assert flows == kinds["f"], (flows, kinds)
    lost = {row.name: row.value for row in trace.query("select name, value from stats where severity in ('error', 'data_loss') and value > 0")}
    assert not lost, lost
    print(f"trace: trace processor: {len(counters)} counters, {flows} flows, no errors")


def main():
    kinds = check_file()
    trace, reason = processor()
    if trace is None:
        print(f"trace: Perfetto's trace processor is not available ({reason}); the file alone was checked")
        return
    with trace:
        check_processor(trace, kinds)


main()
