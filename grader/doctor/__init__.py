"""`grader doctor`: what is fine on this machine, what is missing, and how to mend it.

Each look (`software`, `gpus`, `walls`, `containers`, `space`) turns what it sees into Findings. All run at once, and none can hold
up or end the others. At last a small grading shows whether the whole works (`selftest`).
"""

from grader.doctor.examine import examine, faults, has_fault, verdict
from grader.doctor.finding import Finding
from grader.doctor.show import show

__all__ = ["Finding", "examine", "faults", "has_fault", "show", "verdict"]
