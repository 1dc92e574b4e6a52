"""`grader doctor`: finds missing and broken parts of this machine, and says how to mend them.

The looks (`software`, `gpus`, `walls`, `containers`, `space`) make findings. All looks run at the same time, and none can delay or end
another. Last, a small grading shows whether the parts work together (`selftest`).
"""

from grader.doctor.examine import examine, faults, has_fault, verdict
from grader.doctor.finding import Finding, show

__all__ = ["Finding", "examine", "faults", "has_fault", "show", "verdict"]
