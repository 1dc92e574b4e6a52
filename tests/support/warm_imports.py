"""The imports of a worker on a CPU and the course, for the process that judges are forked from (see `tests.support.warm`)."""

import importlib
import os

os.environ |= {"TRITON_INTERPRET": "1", "OMP_WAIT_POLICY": "passive"}

import triton.experimental.gluon
import triton.language  # noqa: F401

from grader.protocol import NEEDED_FOR_GRADIENTS
from grader.worker import load, run, timing, yardsticks  # noqa: F401
from tests.support.warm_judge import own_course

importlib.import_module(NEEDED_FOR_GRADIENTS)  # otherwise each worker's first backward would
own_course()
