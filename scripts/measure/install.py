#!/usr/bin/env python3
"""What README says of an installation: scripts/measure/install.py [TOOLS]

It builds the wheel into an empty folder (scripts/release/wheel, which says what TOOLS is), and counts the seconds of processor time of
all compilers: unlike the time on the clock these hardly depend on what else the machine does. The size is that of the program in the
wheel. Both go to testdata/install.tsv, and a test compares README with it."""
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def main():
    # Downloads are no work of the compilers.
    subprocess.run(["cargo", "fetch", "--quiet", "--locked"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("CARGO_PROFILE_", "LOCKSCOPE_"))}
        command = [ROOT / "scripts/release/wheel", folder, *sys.argv[1:]]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env={**environment, "CARGO_TARGET_DIR": os.path.join(folder, "target")}, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        (wheel,) = pathlib.Path(folder).glob("lockscope-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            size = next(one.file_size for one in archive.infolist() if one.filename.endswith("/scripts/lockscope"))
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rows = [("what", "value"), ("processor seconds of the build", round(seconds)), ("bytes of the program", size)]
    text = "".join(f"{what}\t{value}\n" for what, value in rows)
    (ROOT / "testdata/install.tsv").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
