"""Saying that something is amiss, without changing a result."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest import Config


class LockscopeWarning(UserWarning):
    """lockscope does less than it was asked for."""


def warn(config: Config, message: str) -> None:
    """A warning of pytest; a plain line on standard error where warnings are errors."""
    try:
        config.issue_config_time_warning(LockscopeWarning(message), stacklevel=2)
    except LockscopeWarning:
        if sys.__stderr__ is not None:
            print(f"lockscope: {message}", file=sys.__stderr__, flush=True)
