"""Whether a person steps through the program: then no time limit may end it."""

from __future__ import annotations

import sys

#: Packages whose trace functions mean a debugger, and not a measurement of coverage.
DEBUGGERS = ("bdb", "pdb", "pydevd", "_pydevd_bundle", "_pydevd_frame_eval", "pydevd_frame_evaluator", "debugpy")


def is_attached() -> bool:
    """True under the debuggers of the standard library and of the common editors."""
    trace = sys.gettrace()
    if trace is not None:
        # A method carries the module of its function, any other object that of its class.
        module = getattr(trace, "__module__", None) or type(trace).__module__
        if module.split(".")[0] in DEBUGGERS:
            return True
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    return monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
