#!/usr/bin/env python3
"""Runs the index of index.py without coldpress and within a budget, and compares the two.

For each run: hash of the result, peak memory and wall time. The peak is seen from outside: at
100 Hz, the resident memory with no file behind it (RssAnon + RssShmem of /proc/PID/status), summed
over the whole process tree, but for services, whose memory is their programs'. Exits 0 only if both
runs give the same hash, and the second holds at most a tenth more than its budget.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
COMMAND = os.environ.get("COLDPRESS_BIN", os.path.join(HERE, "../target/release/coldpress"))
JOB = ["python3", os.path.join(HERE, "index.py")]
BUDGET_MIB = 150
BUDGET_MIB_MIN = 16  # what `coldpress run` accepts
SAMPLE_SECONDS = 0.01
SAMPLES_PER_SCAN = 10  # the tree of processes changes rarely: look for new ones at 10 Hz


class DemoError(Exception):
    """The demo cannot go on; the text says why."""


def process_tree(root):
    """The ids of `root` and of all its descendants."""
    children = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="latin-1") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it ended meanwhile
        children.setdefault(parent, []).append(int(name))
    tree = [root]
    for process in tree:
        tree.extend(children.get(process, ()))
    return tree


def resident_kib(process):
    """Resident memory of one process that no file backs, in KiB; 0 when it has ended."""
    try:
        with open(f"/proc/{process}/status", encoding="latin-1") as file:
            status = file.read()
        with open(f"/proc/{process}/cmdline", "rb") as file:
            command = os.fsdecode(file.read().split(b"\0")[0])
    except OSError:
        return 0
    # A service of coldpress has memory and command line of its program.
    if status.startswith("Name:\tcoldpress\n") and command != COMMAND:
        return 0
    return sum(map(int, re.findall(r"^Rss(?:Anon|Shmem):\s+(\d+)", status, re.M)))


def watch(command):
    """Runs `command`; returns its standard output, peak memory in MiB and wall time in seconds."""
    peak_kib = 0
    samples = 0
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        start = time.monotonic()
        try:
            program = subprocess.Popen(command, stdout=output)
        except OSError as error:
            raise DemoError(f"cannot start {command[0]}: {error.strerror}") from error
        while program.poll() is None:
            if samples % SAMPLES_PER_SCAN == 0:
                tree = process_tree(program.pid)
            samples += 1
            peak_kib = max(peak_kib, sum(map(resident_kib, tree)))
            time.sleep(SAMPLE_SECONDS)
        seconds = time.monotonic() - start
        if program.returncode != 0:
            raise DemoError(f"{command[0]} ended with status {program.returncode}")
        output.seek(0)
        return output.read(), peak_kib / 1024, seconds


def measure(label, command):
    """Watches `command`, prints one row of the table, returns the hash and the peak in MiB."""
    output, peak_mib, seconds = watch(command)
    found = re.search(r"^hash ([0-9a-f]{64})$", output, re.M)
    if found is None:
        raise DemoError(f"{command[0]} printed no hash")
    print(f"{label:<20} {found[1][:16]}  {peak_mib:7.0f} MiB  {seconds:7.1f} s", flush=True)
    return found[1], peak_mib


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memory", type=int, metavar="MIB",
                        help=f"budget (default: {BUDGET_MIB}, or a quarter of a smaller peak)")
    options = parser.parse_args()

    print("An index in memory of the readable text under /usr (python3 demo/index.py)")
    watch([*JOB, "--read-only"])  # so that both runs find their input in the page cache
    print(f"{'':<20} {'result hash':<16}  {'peak memory':>11}  {'wall time':>9}", flush=True)
    plain, peak_mib = measure("without coldpress", JOB)
    budget = options.memory or max(BUDGET_MIB_MIN, min(BUDGET_MIB, int(peak_mib / 4)))
    size = f"{budget}M"
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as stats:
        options = ["--memory", size, "--stats", stats.name]
        within, held_mib = measure(f"--memory {size}", [COMMAND, "run", *options, "--", *JOB])
        figures = json.load(stats)
    print(f"coldpress's own memory: {figures['huge_blocks_available']} whole blocks of 2 MiB "
          f"available at the end, {figures['blocks_returned']} given back to the system")
    is_kept = held_mib <= 1.1 * budget
    if not is_kept:
        print(f"the budget of {budget} MiB was passed")
    print("same result" if plain == within else "the results differ")
    return plain != within or not is_kept


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DemoError as error:
        sys.exit(f"demo: {error}")
