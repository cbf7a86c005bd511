"""Thread form: the body of a launch runs once per lane; see docs/internals/thread-form.md."""

from tilec.interp.thread.checks import LaneChecker
from tilec.interp.thread.forms import is_thread_form, lane_checker
from tilec.interp.thread.machine import ThreadMachine
from tilec.interp.thread.tasks import LaneGroup
from tilec.interp.thread.values import LaneCells, LaneValues, Meaning

__all__ = [
    "LaneCells",
    "LaneChecker",
    "LaneGroup",
    "LaneValues",
    "Meaning",
    "ThreadMachine",
    "is_thread_form",
    "lane_checker",
]
