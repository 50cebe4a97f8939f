"""Compares events of kernels counted by hone profile with those of ncu. scripts/check_counters.sh runs this.
  check_counters.py KERNEL_SUMMARY NCU_CSV
Compared are means over the launches of a kernel, since ncu sees more steps than hone profile counts."""
import collections
import csv
import json
import re
import sys

MOST = {"gpu_instructions": 0.02, "dram_bytes": 0.15}  # relative differences; caches hold other data in other steps
LEAST_BYTES = 4e6  # of a launch; fewer bytes depend on what is in the L2 cache
SCALES = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "ns": 1, "us": 1e3, "ms": 1e6, "inst": 1, "nsecond": 1, "usecond": 1e3}


def short(name):
    """The name of a function without parameters, template arguments and namespaces without names."""
    name = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    return re.split(r"[<(]", re.sub(r"^void ", "", name))[0].split("::")[-1].strip()


def of_ncu(path):
    lines = [line for line in open(path) if line.startswith('"')]
    sums, launches = collections.defaultdict(collections.Counter), collections.defaultdict(set)
    for row in csv.DictReader(lines):
        name = short(row["Kernel Name"])
        launches[name].add(row["ID"])
        sums[name][row["Metric Name"]] += float(row["Metric Value"].replace(",", "")) * SCALES[row["Metric Unit"]]
    return {name: {"runs": len(launches[name]), "gpu_instructions": sums[name]["smsp__inst_executed.sum"] / len(launches[name]),
                   "dram_bytes": (sums[name]["dram__bytes_read.sum"] + sums[name]["dram__bytes_write.sum"]) / len(launches[name])}
            for name in sums}


def of_hone(path):
    counters = json.load(open(path))["counters"]
    assert counters["refusal"] == "", counters["refusal"]
    sums = collections.defaultdict(collections.Counter)
    for row in counters["launched"]:
        sums[short(row["kernel"])].update({"runs": row["runs"], "gpu_instructions": row["gpu_instructions"],
                                           "dram_bytes": row["dram_read_bytes"] + row["dram_written_bytes"]})
    return {name: {"runs": row["runs"], **{key: row[key] / row["runs"] for key in MOST}} for name, row in sums.items()}


def main():
    hone, ncu = of_hone(sys.argv[1]), of_ncu(sys.argv[2])
    missing = sorted(set(hone) - set(ncu))
    assert not missing, f"ncu has not seen {missing}"
    compared = failed = 0
    for name, row in sorted(hone.items()):
        for key, most in MOST.items():
            if key == "dram_bytes" and max(row[key], ncu[name][key]) < LEAST_BYTES:
                continue
            compared += 1
            difference = row[key] / max(ncu[name][key], 1) - 1
            bad = abs(difference) > most
            failed += bad
            print(f"counters: {name[:60]}: {key} a launch: {row[key]:.5g}, ncu {ncu[name][key]:.5g} ({100 * difference:+.1f}%){' FAILED' if bad else ''}")
    print(f"counters: {compared} compared, {failed} failed")
    assert compared > 0
    return failed > 0


sys.exit(main())
