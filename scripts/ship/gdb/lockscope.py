"""The command `lockscope` inside of gdb: why the program that gdb holds hangs. `source lockscope.py` adds it.

gdb traces its process, so that nobody else can: gdb writes a core of it, and lockscope reads that. A core that is open in gdb
is read as it is. The core says less than a look at a living process does: it has no descriptors and no names of threads.

    lockscope [ARGUMENTS OF lockscope core]     the report
    lockscope frame [N]                         list the frames that wait or hold; go to the Nth

The program is found on the PATH; `set lockscope-program FILE` names another.
"""

import json
import os
import re
import subprocess
import tempfile

import gdb


class Program(gdb.Parameter):
    """The lockscope program."""

    set_doc = "Set the lockscope program."
    show_doc = "Show the lockscope program."

    def __init__(self):
        super().__init__("lockscope-program", gdb.COMMAND_SUPPORT, gdb.PARAM_FILENAME)
        self.value = os.environ.get("LOCKSCOPE_PROGRAM", "lockscope")

    def get_set_string(self):
        return ""


class Lockscope(gdb.Command):
    """Say why this program hangs: who waits for what, who holds it, and what to change.

    lockscope [ARGUMENTS]   the report; arguments as for `lockscope core`, such as -o hang.html
    lockscope frame [N]     the frames that wait or hold, or go to the Nth of them"""

    def __init__(self, program):
        super().__init__("lockscope", gdb.COMMAND_STACK)
        self.program = program
        #: The last report, for `lockscope frame`.
        self.report = None

    def invoke(self, argument, from_tty):
        self.dont_repeat()
        words = gdb.string_to_argv(argument)
        if words[:1] == ["frame"]:
            self.frame(words[1:])
        else:
            self.look(words)

    def look(self, words):
        """Print the report, and keep it."""
        with tempfile.TemporaryDirectory(prefix="lockscope-") as folder:
            core, more = self.core(folder)
            kept = os.path.join(folder, "report.json")
            command = [self.program.value, "core", core, *more, "-o", kept]
            shown = [] if any(word in ("-o", "--output", "--format") for word in words) else ["-o", "-"]
            try:
                done = subprocess.run([*command, *shown, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            except OSError as error:
                raise gdb.GdbError(f"cannot run {self.program.value}: {error}; see `help set lockscope-program`") from error
            gdb.write(done.stdout.decode("utf-8", "replace"))
            if done.returncode not in (0, 1):
                raise gdb.GdbError(done.stderr.decode("utf-8", "replace").strip())
            with open(kept, encoding="utf-8") as file:
                self.report = json.load(file)
        self.frame([])

    def core(self, folder):
        """A core of what gdb has, and how to read it."""
        inferior = gdb.selected_inferior()
        if not inferior.is_valid() or not inferior.threads():
            raise gdb.GdbError("there is no process and no core; `attach PID`, `run`, or `core FILE` first")
        program = gdb.current_progspace().filename
        more = ["--exe", program] if program else []
        open_core = self.open_core()
        if open_core:
            return open_core, more
        core = os.path.join(folder, "core")
        # gdb reads all memory for it; what the program's files hold need not be in it.
        gdb.execute(f"gcore {core}", to_string=True)
        return core, more

    @staticmethod
    def open_core():
        """The path of the core that is open in gdb, if one is."""
        found = re.search(r"Local core dump file:\s+`(.+)', file type", gdb.execute("info files", to_string=True))
        return found and found.group(1)

    def frame(self, words):
        """Go to a frame, or list them."""
        if self.report is None:
            raise gdb.GdbError("there is no report yet: `lockscope` makes one")
        marked = marked_frames(self.report)
        if not words:
            for number, (tid, _, what) in enumerate(marked, 1):
                gdb.write(f"lockscope frame {number}: thread {tid} {harmless(what)}\n")
            return
        if len(words) != 1 or not words[0].isdigit() or not 1 <= int(words[0]) <= len(marked):
            raise gdb.GdbError(f"lockscope frame takes a number from 1 to {len(marked)}")
        tid, pc, _ = marked[int(words[0]) - 1]
        go_to(tid, pc)


def marked_frames(report):
    """Thread, program counter and words for each frame that waits for something or holds it, the findings' threads first."""
    threads = {
        (process["id"], thread["tid"]): thread for process in report["processes"] for thread in process["threads"]
    }
    labels = {resource["id"]: resource["label"] or resource["kind"] for resource in report["resources"]}
    first = [(one["process"], one["tid"]) for finding in report["findings"] for one in finding["threads"]]
    found = []
    for kind, verb in (("waits", "waits for"), ("holds", "holds")):
        for one in report[kind]:
            key = (one["process"], one.get("tid"))
            if key not in threads or one.get("frame") is None:
                continue
            pc = next_pc(threads[key]["frames"][one["frame"] :])
            if pc is not None:
                order = first.index(key) if key in first else len(first)
                found.append((order, key[1], pc, f"{verb} {labels.get(one['resource'], 'it')}"))
    return [entry[1:] for entry in sorted(found, key=lambda entry: entry[0])]


def harmless(text):
    """Names of the program's own move no cursor and end no line."""
    return "".join(letter if letter.isprintable() else f"\\u{{{ord(letter):x}}}" for letter in text)


def next_pc(frames):
    """A Python frame has no place of its own on the stack: the next native one outside of it runs it."""
    return next((int(frame["pc"], 16) for frame in frames if frame["pc"]), None)


def go_to(tid, pc):
    """Select the thread and its frame."""
    for thread in gdb.selected_inferior().threads():
        if thread.ptid[1] == tid:
            thread.switch()
            frame = gdb.newest_frame()
            while frame is not None:
                if frame.pc() == pc and frame.type() != gdb.INLINE_FRAME:
                    frame.select()
                    gdb.execute("frame")
                    return
                frame = frame.older()
            raise gdb.GdbError(f"gdb finds no frame at {pc:#x} in thread {tid}")
    raise gdb.GdbError(f"gdb has no thread {tid}")


Lockscope(Program())
