"""The canary: the staff's own file in place of the submission's, to tell a broken machine from a broken submission.

A broken compiler, driver or disk makes every file fail. A student's failure stands only if the staff's file works in
the same place: in a worker of the same kind, in the same jail, with the same tools. The canary runs at most once for an
assignment, and only after a failure that may be the machine's: a tool or driver failed outside the student's own lines,
or all cases of the assignment failed alike.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pkgutil import iter_modules

from grader.assignment import Assignment
from grader.judge.asking import answer
from grader.judge.cases import BoundCase
from grader.judge.comparison import Comparison
from grader.judge.compilation import Compilation, compiled_call, raise_fault
from grader.judge.evidence import Evidence
from grader.judge.lanes import Lanes
from grader.judge.run import Run
from grader.judge.workers import Workers
from grader.pool.fault import Fault
from grader.protocol import INCLUDE, OF_PYTORCH
from grader.report.model import UNDECIDED, CaseResult
from grader.submission import pack, unpack
from grader.verdict.policy import included_from
from grader.verdict.text import decoded

MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
# Outcomes that may be the machine's fault, unless the student's own line raised the error.
SUSPECT = ("failed", "build_failed", "crashed", "timed_out", "out_of_memory")
CANARY_NUMBER = 2_000_000  # the number of its call, higher than any case has
TORCH_CANARY = """#include <torch/extension.h>
torch::Tensor same(torch::Tensor x) {{ return x; }}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{entry}", &same); }}
"""


@dataclass
class Canary:
    """Tells a broken machine from a broken submission. Lanes and compilation end before the canary ends the
    submission's workers.
    """

    run: Run
    workers: Workers
    lanes: Lanes
    comparison: Comparison
    compilation: Compilation
    _told: dict[str, str] = field(init=False, default_factory=dict)
    _faults: dict[str, list[Fault]] = field(init=False, default_factory=dict)

    def look_into(self, assignment: Assignment, fault: Fault) -> Fault | None:
        """The machine's fault behind a single fault of the submission; None if there is none."""
        self._faults.setdefault(assignment.name, []).append(fault)
        policy, found = assignment.spec.policy, MISSING.match(fault.message)
        module = found[1] if found and policy is not None and found[1] in policy.imports else ""
        if module and module not in sys.stdlib_module_names and all(one.name != module for one in iter_modules()):
            words = f"{module} is not installed here, and [policy] of {assignment.name} lets submissions import it: install it"
            return Fault.of_machine(words, (fault.traceback,))
        if fault.whose != "toolchain" or fault.outcome not in SUSPECT:
            return None
        return self._machine_fault_of(assignment, fault)

    def look_back(self, assignment: Assignment, results: Iterable[CaseResult]) -> Fault | None:
        """The machine's fault, if one was found or if all cases failed alike and none gave an answer; None
        otherwise.
        """
        if words := self._told.get(assignment.name):
            return Fault.of_machine(words)
        faults = self._faults.get(assignment.name, [])
        decided = [one for one in results if one.outcome not in (*UNDECIDED, "not_implemented")]
        # After two cases without an answer, messages of the part's other cases differ: they are not run, and say so.
        alike = {(one.outcome, "" if one.outcome == "timed_out" else one.message) for one in decided}
        if len(decided) < 2 or len(alike) != 1 or any(one.outcome not in SUSPECT or one.errors for one in decided):
            return None
        if len(faults) < len(decided) or any(one.whose == "submission" for one in faults):
            return None
        return self._machine_fault_of(assignment, faults[0])

    def _machine_fault_of(self, assignment: Assignment, fault: Fault) -> Fault | None:
        """The machine's fault if the staff's file fails here too, in the tools' own words; None if it works.

        First, all processes of the submission end and its files are removed: a submission that fills the disk must not
        break the canary.
        """
        if assignment.name not in self._told:
            self.lanes.finish()
            self.compilation.wait()
            self.workers.pool.clear()
            self._told[assignment.name] = self._try(assignment)
        if not (words := self._told[assignment.name]):
            return None
        details = f"what became of the submission: {fault.outcome}, {fault.message}", fault.traceback
        return Fault.of_machine(words, details)

    def _try(self, assignment: Assignment) -> str:
        """How the staff's file fails here; "" if it works."""
        folder = self.run.request.copied.folder.with_name("canary")
        name = assignment.spec.file
        try:
            unpack(pack(self.run.request.course / "reference"), folder)
            if self._is_torch_form(assignment):
                (folder / name).unlink()
                (folder / name).write_text(TORCH_CANARY.format(entry=assignment.spec.entry), encoding="utf-8")
            case = self._case(assignment)
            with self.workers.canary(assignment, folder) as worker:
                if case is not None and not self._is_torch_form(assignment):
                    call = case.inputs(self.run.seed, CANARY_NUMBER, self.run.device)
                    got = answer(self.run, case, worker, call)
                    self.comparison.compare(case, call, got, Evidence(), drawn=True)
            if (compiled := self.compilation.first_case(assignment)) is not None:
                with self.workers.canary(assignment, folder, compiling=True) as worker:
                    raise_fault(compiled_call(self.run, worker, compiled, assignment.spec.gpu))
        except (Fault, OSError) as error:
            told = getattr(error, "traceback", "")
            return "\n".join(filter(None, [f"the staff's own {name} fails here too: {error}", told]))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return ""

    def _case(self, assignment: Assignment) -> BoundCase | None:
        """The first case of the assignment that is an ordinary call on this device, with values to compute."""
        device = self.run.device_name
        is_interpreted = device == "cpu" and assignment.spec.language == "triton"
        for one in (one for one in self.run.cases if one.assignment is assignment and device in one.case.devices):
            case = one.case
            is_special = case.tool or case.memory_gib or case.max_extra_mib or not case.shows_values(device)
            if not is_special and not (is_interpreted and not case.interpreted):
                return one
        return None

    def _is_torch_form(self, assignment: Assignment) -> bool:
        if assignment.spec.language != "cuda":
            return False
        copied = self.run.request.copied
        sources = {name: decoded((copied.folder / name).read_bytes()) for name in copied.info.files}
        codes = included_from(assignment.spec.file, sources).values()
        return any(header.startswith(OF_PYTORCH) for code in codes for header in INCLUDE.findall(code))
