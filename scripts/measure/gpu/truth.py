"""Condenses what cuda-gdb said of GPU cores (the `.truth` files of cores.py) to a table: truth.py FOLDER... >truth.txt

A line a kernel, `CASE kernel GRID STATUS (GRID) (BLOCK) NAME`, and a line a program counter, `CASE at ADDRESS THREADS FILE:LINE`; FILE is
the last part of the path, and - where there is no line. A test compares it with what lockscope reads."""
import collections
import os
import re
import sys

KERNEL = re.compile(r"^\*? +\d+ +\S+ +\d+ +(\d+) +(\w+) +0x[0-9a-f]+ +(\(\S+\)) +(\(\S+\)) +(.+?)\((?!anonymous).*\) *$")
THREADS = re.compile(r"^\*? +\(\S+\) +\(\S+\) +\(\S+\) +\(\S+\) +(\d+) (0x[0-9a-f]+) +(\S*) +(\d+) *$")


def condense(name, lines):
    section, counts, seen, told = "", collections.OrderedDict(), set(), []
    for line in lines:
        if line.startswith(">>> "):
            section = line[4:].strip()
            of_kernel = None
        elif section == "info cuda kernels" and KERNEL.match(line):
            told.append("%s kernel %s %s %s %s %s" % ((name,) + KERNEL.match(line).groups()))
        elif section == "info cuda threads" and line.startswith("Kernel "):
            of_kernel = None if line in seen else line
            seen.add(line)
        elif section == "info cuda threads" and of_kernel and THREADS.match(line):
            threads, address, file, number = THREADS.match(line).groups()
            where = "%s:%s" % (os.path.basename(file), number) if number != "0" else "-"
            key = (int(address, 16), where)
            counts[key] = counts.get(key, 0) + int(threads)
        elif line.startswith("CUDA Exception: "):
            told.append("%s error %s" % (name, line[len("CUDA Exception: "):].strip()))
        elif line.startswith("The exception was triggered at PC "):
            told.append("%s error at %s" % (name, line[len("The exception was triggered at PC "):].split("  ", 1)[0].strip() + " " + line.rsplit("(", 1)[1].rstrip(")\n ")))
    return told + ["%s at %#x %d %s" % (name, address, threads, where) for (address, where), threads in sorted(counts.items())]


def main():
    done = set()
    for folder in sys.argv[1:]:
        for file in sorted(os.listdir(folder)):
            name = file[:-len(".truth")].replace(".exception", "")
            if file.endswith(".truth") and name not in done:
                done.add(name)
                with open(os.path.join(folder, file), errors="replace") as lines:
                    for line in condense(name, lines):
                        print(line)


if __name__ == "__main__":
    main()
