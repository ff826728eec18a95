#!/usr/bin/env python3
"""A search index of the readable text under a directory, held in memory.

Every line of text is kept, and every word points to the lines that hold it, so that a query can
show its matches at once. The input is bounded by --limit; files are taken in sorted order, so the
same tree always gives the same index, and its digest says so.
"""

import argparse
import hashlib
import os
import re
from array import array

WORD = re.compile(r"[a-z_][a-z0-9_]{1,31}")
FILE_BYTES_MAX = 1 << 20  # larger files are mostly tables and logs: one would crowd out the rest
HEAD_BYTES = 4096  # a zero byte in the head marks a binary file

QUERIES = ["memory", "page fault", "the license", "import", "return value", "signal handler",
           "thread lock", "unicode", "copyright free", "while true", "pressure", "nothing_has_this"]


def read_text(path):
    """The text of the file at `path`, or None when it is no regular, readable UTF-8 file."""
    try:
        if os.path.islink(path) or not os.path.isfile(path):
            return None
        if os.path.getsize(path) > FILE_BYTES_MAX:
            return None
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
            if not head or b"\0" in head:
                return None
            return (head + file.read()).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def texts(root, limit):
    """Yields (path, text) in sorted order until `limit` characters were given."""
    total = 0
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            text = read_text(path)
            if text is None:
                continue
            if total + len(text) > limit:
                return
            total += len(text)
            yield path, text


class Index:
    """Lines by number, and for each word the sorted numbers of the lines that hold it."""

    def __init__(self):
        self.lines = []
        self.words = {}
        self.paths = []

    def add(self, path, text):
        """Takes one file in."""
        self.paths.append((len(self.lines), path))
        for line in text.splitlines():
            number = len(self.lines)
            self.lines.append(line)
            for word in WORD.findall(line.lower()):
                found = self.words.get(word)
                if found is None:
                    self.words[word] = array("I", (number,))
                elif found[-1] != number:
                    found.append(number)

    def query(self, words):
        """The numbers of the lines that hold every one of `words`, ascending."""
        groups = sorted((self.words.get(word, ()) for word in words), key=len)
        wanted = set(groups[0])
        for group in groups[1:]:
            wanted.intersection_update(group)
        return sorted(wanted)

    def digest(self):
        """SHA-256 over all paths, all lines in order and all words, sorted, with their lines."""
        digest = hashlib.sha256()
        for start, path in self.paths:
            digest.update(b"%d %s\n" % (start, os.fsencode(path)))
        for line in self.lines:
            digest.update(line.encode())
        for word in sorted(self.words):
            digest.update(word.encode())
            digest.update(self.words[word].tobytes())
        return digest


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", default="/usr", help="directory to index")
    parser.add_argument("--limit", type=int, default=180, help="input bound in million characters")
    parser.add_argument("--read-only", action="store_true", help="read the input, index nothing")
    options = parser.parse_args()

    index = Index()
    for path, text in texts(options.root, options.limit * 1_000_000):
        if not options.read_only:
            index.add(path, text)
    if options.read_only:
        return
    postings = sum(len(group) for group in index.words.values())
    print(f"{len(index.paths)} files, {len(index.lines)} lines, "
          f"{len(index.words)} words, {postings} postings")

    digest = index.digest()
    for query in QUERIES:
        matches = index.query(query.split())
        print(f"{query}: {len(matches)} lines")
        for number in matches:
            digest.update(index.lines[number].encode())
    print(f"hash {digest.hexdigest()}")


if __name__ == "__main__":
    main()
