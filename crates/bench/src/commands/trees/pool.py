"""A pool of eight processes, each with records of its own that it goes through again and again.

Prints a sum of what they found. Usage: pool.py RECORDS TASKS
"""

import multiprocessing
import sys
import zlib


def work(task):
    """Makes the records of a task, looks them up and sorts them: a sum of what is left."""
    number, records = task
    table = {f"record-{number}-{i}": [i, f"city {i * 7919 % 1000}", i / 3] for i in range(records)}
    for step in range(1, 4):
        for i in range(0, records, step):
            record = table[f"record-{number}-{i}"]
            record[0] += step
            record[2] /= step
    text = "\n".join(f"{name}: {record}" for name, record in sorted(table.items()))
    return zlib.crc32(text.encode())


def main():
    """Runs all tasks, in an order that does not matter."""
    records, tasks = int(sys.argv[1]), int(sys.argv[2])
    with multiprocessing.get_context("fork").Pool(8) as pool:
        for number, found in enumerate(pool.map(work, [(n, records) for n in range(tasks)], 1)):
            print(number, f"{found:08x}")


if __name__ == "__main__":
    main()
