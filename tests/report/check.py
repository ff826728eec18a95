#!/usr/bin/env python3
"""Makes the reports of five runs and looks at each in a browser: `make report-check`.

Usage: check.py FOLDER [PICTURE]. Reports and pictures of them go into FOLDER; PICTURE is the
beginning of one of them, as README shows it. COLDPRESS_BIN is the command.

A report must hold the sentence that belongs to its run. It must open without a request and without
a word on the console, at both widths, light and dark, and no text may leave its box or lie on
another.
"""

import os
import subprocess
import sys

import browser

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "../fixtures")
SIZES = [(375, 812), (1280, 800)]
SCHEMES = ["light", "dark"]
# The part of a page that README shows.
SHOWN = (900, 860)

# Holds 72 MiB, works with a sixth of it, and leaves the rest cold.
TIGHT = """
blocks = [bytearray(b"%08d" % number * 8192) for number in range(1152)]
for _ in range(300):
    sum(range(800_000))
    for block in blocks[::6]:
        block[7] ^= 1
"""
# Touches pages of 192 MiB at random.
THRASHES = """
import random
chance = random.Random(7)
blocks = [bytearray(chance.randbytes(1024) + bytes(3072)) for number in range(49152)]
for _ in range(400_000):
    blocks[chance.randrange(49152)][7] ^= 1
"""


def fixture(name, *words):
    return ["python3", os.path.join(FIXTURES, name), *words]


# The name of each run, its budget, its program, and what its report must say.
RUNS = [
    ("fits", "80M", fixture("hold.py", "private", "24", "4"),
     ["Half the memory would do", " was enough"]),
    ("tight", "64M", ["python3", "-c", TIGHT], ["The budget is tight and holds"]),
    ("thrashes", "96M", ["python3", "-c", THRASHES],
     ["The program thrashes", "ends 90 % of the waiting"]),
    ("forks", "40M", fixture("fork.py", "48"), ["Managed processes forked once"]),
    ("shared", "64M", fixture("shared.py", "anon", "40", "2", "16"),
     ["of the peak is shared memory"]),
]
# Runs in the page.
with open(os.path.join(HERE, "look.js"), encoding="utf-8") as file:
    LOOK = file.read()


def run(command, folder, name, budget, program):
    """Runs a program, and returns the path of its report."""
    page = os.path.join(folder, f"{name}.html")
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith("COLDPRESS_")}
    subprocess.run(
        [command, "run", "--quiet", "--memory", budget, "--report", page,
         "--stats", os.path.join(folder, f"{name}.json"), "--", *program],
        env=environment, stdout=subprocess.DEVNULL, check=True, timeout=300)
    return page


def look(tab, page, folder, name):
    """Opens a report at all widths and in both schemes, and returns what is wrong with it."""
    faults = []
    for width, height in SIZES:
        for scheme in SCHEMES:
            where = f"{name} at {width}, {scheme}"
            requests, said = tab.open(page, width, height, scheme)
            faults += [f"{where}: asks for {request}" for request in requests]
            faults += [f"{where}: the console says {line}" for line in said]
            tab.picture(os.path.join(folder, f"{name}-{width}-{scheme}.png"))
            faults += [f"{where}: {fault}" for fault in tab.evaluate(LOOK)]
            tab.evaluate("document.querySelectorAll('details').forEach(it => it.open = true)")
            faults += [f"{where}, tables open: {fault}" for fault in tab.evaluate(LOOK)]
            ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            if ground != {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[scheme]:
                faults.append(f"{where}: the ground is {ground}")
    tab.printed(os.path.join(folder, f"{name}.pdf"))
    return faults


def main():
    folder, picture = sys.argv[1], (sys.argv[2:] or [None])[0]
    path = browser.find()
    if path is None:
        print("skipped: no chromium")
        return os.environ.get("CI") == "true"
    os.makedirs(folder, exist_ok=True)
    faults, pages = [], {}
    for name, budget, program, sentences in RUNS:
        pages[name] = run(os.environ["COLDPRESS_BIN"], folder, name, budget, program)
        with open(pages[name], encoding="utf-8") as file:
            text = file.read()
        absent = [sentence for sentence in sentences if sentence not in text]
        faults += [f"{name}: does not say {sentence!r}" for sentence in absent]
    tab = browser.Browser(path)
    try:
        for name, page in pages.items():
            faults += look(tab, page, folder, name)
        if picture:
            tab.open(pages["thrashes"], *SHOWN, "light")
            tab.picture(picture, SHOWN[1])
    finally:
        tab.close()
    for fault in faults:
        print(fault)
    print(f"report-check: {len(pages)} reports, {len(faults)} faults; pictures are in {folder}")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
