"""Whose fault a failure is: the staff's own file, built and asked one case where the submission's failed.

A compiler, a linker, a driver or a disk that does not work makes every file fail. The student's failure stands only if the staff's file
works in the same place: in a worker of the same kind, in the same jail, with the same tools. It is asked at most once for each assignment,
and only where a failure may be the machine's: where a tool or a driver refused its work, and not the student's own line; and where
every case of an assignment failed in one and the same way.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from pkgutil import iter_modules

from grader.assignment import Assignment
from grader.contender.contender import Contender, WorkerUnavailable
from grader.contender.replies import ContenderFault
from grader.judge.asking import answer
from grader.judge.cases import BoundCase
from grader.judge.comparison import Comparison
from grader.judge.compilation import Compilation, compiled_call, raise_fault
from grader.judge.crew import Crew
from grader.judge.evidence import CaseRefused, CheckFailed, Evidence, MachineFault
from grader.judge.lanes import Lanes
from grader.judge.loading import load_file
from grader.judge.run import Run
from grader.report.model import UNDECIDED, CaseResult
from grader.submission import pack, unpack

MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
# What may be the machine's fault, where the student's own line has not raised it.
SUSPECT = ("failed", "build_failed", "crashed", "timed_out", "out_of_memory")
CANARY_NUMBER = 2_000_000  # of the call whose inputs are used: no case has so many
TORCH_FORM = re.compile(rb'#\s*include\s*[<"](torch|ATen|c10)/')
TORCH_CANARY = """#include <torch/extension.h>
torch::Tensor same(torch::Tensor x) {{ return x; }}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{entry}", &same); }}
"""


class Canary:
    """Tells a broken machine from a broken submission.

    Args:
        lanes, compilation: waited for, before the submission's workers are ended.
        cases: of all assignments.
    """

    def __init__(
        self,
        run: Run,
        crew: Crew,
        lanes: Lanes,
        comparison: Comparison,
        cases: Sequence[BoundCase],
        compilation: Compilation,
    ) -> None:
        self._run = run
        self._crew = crew
        self._lanes = lanes
        self._comparison = comparison
        self._cases = cases
        self._compilation = compilation
        self._told: dict[str, str] = {}
        self._faults: dict[str, list[ContenderFault]] = {}

    def look_into(self, assignment: Assignment, fault: ContenderFault) -> MachineFault | None:
        """The machine's fault that a fault of the submission's turns out to be, as far as one alone can tell."""
        self._faults.setdefault(assignment.name, []).append(fault)
        if (found := MISSING.match(fault.message)) and _is_missing(found[1], assignment):
            words = f"{found[1]} is not installed here, and [policy] of {assignment.name} lets submissions import it: install it"
            return MachineFault(words, (fault.traceback,))
        if fault.raised_by != "toolchain" or fault.outcome not in SUSPECT:
            return None
        return self._machine_fault_of(assignment, fault)

    def look_back(self, assignment: Assignment, results: Iterable[CaseResult]) -> MachineFault | None:
        """The machine's fault, where it was found in one case, or where all cases ended alike and in none was an answer to look at."""
        if words := self._told.get(assignment.name):
            return MachineFault(words)
        faults = self._faults.get(assignment.name, [])
        decided = [one for one in results if one.outcome not in (*UNDECIDED, "not_implemented")]
        # After two cases without an answer the others of a part are not run, and say so.
        alike = {(one.outcome, "" if one.outcome == "timed_out" else one.message) for one in decided}
        if len(decided) < 2 or len(alike) != 1 or any(one.outcome not in SUSPECT or one.errors for one in decided):
            return None
        if len(faults) < len(decided) or any(one.raised_by == "submission" for one in faults):
            return None
        return self._machine_fault_of(assignment, faults[0])

    def _machine_fault_of(self, assignment: Assignment, fault: ContenderFault) -> MachineFault | None:
        if not (words := self.machine_fault(assignment)):
            return None
        return MachineFault(
            words, (f"what became of the submission: {fault.outcome}, {fault.message}", fault.traceback)
        )

    def machine_fault(self, assignment: Assignment) -> str:
        """How the staff's file fails here, in the tools' own words; nothing where it works. Asked again, it says the same.

        All that the submission runs is ended first, and what it has left is removed: a submission that has filled the disk condemns
        nobody but itself.
        """
        if assignment.name not in self._told:
            self._lanes.finish()
            self._compilation.wait()
            self._crew.clear()
            self._told[assignment.name] = self._try(assignment)
        return self._told[assignment.name]

    def _try(self, assignment: Assignment) -> str:
        folder = self._run.job.submission.with_name("canary")
        name = assignment.spec.file
        try:
            unpack(pack(self._run.job.course / "reference"), folder)
            if self._is_torch_form(assignment):
                (folder / name).unlink()
                (folder / name).write_text(TORCH_CANARY.format(entry=assignment.spec.entry), encoding="utf-8")
            case = self._case(assignment)
            with self._crew.canary(assignment, folder) as worker:
                worker.ready()
                load_file(worker, folder, assignment)
                if case is not None and not self._is_torch_form(assignment):
                    self._ask(worker, case)
            if (compiled := self._compilation.first_case(assignment)) is not None:
                with self._crew.canary(assignment, folder, compiling=True) as worker:
                    worker.ready()
                    load_file(worker, folder, assignment)
                    raise_fault(compiled_call(self._run, worker, compiled, assignment.spec.arch))
        except (ContenderFault, CheckFailed, CaseRefused, WorkerUnavailable, OSError) as error:
            told = getattr(error, "traceback", "")
            return "\n".join(filter(None, [f"the staff's own {name} fails here too: {error}", told]))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return ""

    def _ask(self, worker: Contender, case: BoundCase) -> None:
        """Have the staff's file answer a case, rightly. Raises CheckFailed, CaseRefused, ContenderFault."""
        call = case.inputs(self._run.seed, CANARY_NUMBER, self._run.device)
        got = answer(self._run, case, worker, call, Evidence())
        self._comparison.compare(case, call, got, Evidence(), drawn=True)

    def _case(self, assignment: Assignment) -> BoundCase | None:
        """The first case that is an ordinary call here: one with something to compute."""
        device = self._run.device_name
        for one in self._cases:
            case = one.case
            interpreted = device == "cpu" and assignment.spec.language == "triton"
            special = case.tool or case.memory_gib or case.max_extra_mib or case.degenerate
            special = special or (device == "cpu" and case.cpu_windows > 1)
            if one.assignment.name == assignment.name and device in case.devices and not special:
                if interpreted and not case.interpreted:
                    continue
                return one
        return None

    def _is_torch_form(self, assignment: Assignment) -> bool:
        source = self._run.job.submission / assignment.spec.file
        return assignment.spec.language == "cuda" and TORCH_FORM.search(source.read_bytes()) is not None


def _is_missing(module: str, assignment: Assignment) -> bool:
    """Whether a module that submissions may import is not here."""
    policy = assignment.spec.policy
    return policy is not None and module in policy.imports and module not in _installed()


def _installed() -> set[str]:
    """Names of the modules and packages that can be imported here."""
    return {*sys.stdlib_module_names, *(one.name for one in iter_modules())}
