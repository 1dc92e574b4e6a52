"""The terminal view of `grader check`: a line for each assignment, or its first mistake, in a large panel or in a compiler's form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.spinner import Spinner
from rich.styled import Styled
from rich.table import Table
from rich.text import Text

from grader.assignment import Assignment
from grader.messages import CaseDone, CaseStarted, Event, Planned
from grader.report.failures import Detail, case_view, within
from grader.report.kernels import kernels_view
from grader.report.model import NOT_RUN, CaseResult, Report
from grader.report.style import STYLE, LiveView, counted, plain
from grader.report.terminal import hints, printed

LETTERS = 2000  # The text of a mistake is cut to this many letters, as `Detail.letters` is.
NAMED = 6  # A line names up to so many cases; of more it gives the number.


@dataclass
class _Tally:
    """The progress of one assignment during a check."""

    file: str
    total: int = 0
    passed: list[str] = field(default_factory=list)
    done: int = 0
    stopped: bool = False

    @property
    def counted(self) -> str:
        return counted(len(self.passed), "case")


class CheckView(LiveView):
    """Shows the events of a check.

    command: the check as a student would type it again.
    place: of a result of a file, "path:line" for an editor; mistakes have gcc's form then. None shows them in panels.

    Attributes:
        mistakes: the number of assignments with a mistake.
        unchecked: the number of assignments without a case that can run here.
    """

    def __init__(
        self, console: Console, command: str = "grader check", place: Callable[[CaseResult, str], str] | None = None
    ) -> None:
        self._command = command
        self._place = place
        self._some_right = False
        self._with_inputs: list[str] = []  # the assignments whose mistake showed on drawn inputs
        self._tallies: dict[str, _Tally] = {}
        self._now: CaseStarted | None = None
        self._spinner = Spinner("dots")
        self.mistakes = 0
        self.unchecked = 0
        self.infra_errors: tuple[str, ...] = ()
        super().__init__(console, self._progress)

    def _progress(self) -> RenderableType:
        line = Table.grid(padding=(0, 1))
        tally = self._tallies.get(self._now.assignment) if self._now else None
        if self._now is None or tally is None:
            line.add_row(self._spinner, plain("starting ...", "dim"))
        else:
            line.add_row(self._spinner, plain(tally.file, "bold"), f"{tally.done}/{tally.total}", plain(self._now.case))
        return line

    def seen(self, assignment: Assignment, result: CaseResult) -> None:
        self._show(assignment.spec.file, result, _Tally(assignment.spec.file))

    def hint(self, words: str) -> None:
        """Show a sentence about a line that is no mistake as long as no call runs it."""
        self._console.print(plain(words, "dim"), soft_wrap=True)

    def __call__(self, event: Event) -> None:
        match event:
            case Planned():
                for part in event.parts:
                    tally = self._tallies.setdefault(part.assignment, _Tally(part.file))
                    tally.total += part.cases
            case CaseStarted():
                self._now = event
            case CaseDone():
                self._done(event, self._tallies[event.assignment])
            case _:
                pass

    def _done(self, event: CaseDone, tally: _Tally) -> None:
        tally.done, result = tally.done + 1, event.result
        if result.outcome == "passed":
            tally.passed.append(result.title)
        elif result.outcome != "skipped" and not tally.stopped:
            tally.stopped = True
            self._show(tally.file, result, tally, event.pattern)
            ran = result.errors or result.time_s or tally.passed
            if ran and result.outcome not in ("forbidden", "not_implemented"):
                self._with_inputs.append(event.assignment)
        if tally.done == tally.total and not tally.stopped:
            left = tally.total - len(tally.passed)
            more = f", {left} skipped" if left else ""
            told = f"{tally.counted} passed{more}" if tally.passed else f"not checked: {result.message}"
            self.unchecked += not tally.passed
            self._some_right |= bool(tally.passed)
            mark = STYLE["passed" if tally.passed else "skipped"]
            self._console.print(Text.assemble(mark, " ", (tally.file, "bold"), plain(f"  {told}")))

    def _show(self, file: str, result: CaseResult, tally: _Tally, pattern: str = "") -> None:
        mark, style = STYLE[result.outcome]
        if result.outcome == "not_implemented":
            passed = f" ({tally.counted} passed)" if tally.passed else ""
            self._console.print(Text.assemble((mark, style), " ", (file, "bold"), "  ", plain(result.message), passed))
            return
        self.mistakes += 1
        first, *others = case_view(result, Detail(letters=LETTERS))
        above: list[RenderableType] = [plain(pattern, "bold")] if pattern else []
        blocks: list[RenderableType] = [Padding(one, (1, 0, 0, 0)) for one in others]
        folded = []
        if tally.passed:
            names = tally.counted if len(tally.passed) > NAMED else ", ".join(tally.passed)
            folded.append(f"passed before it: {names}")
        if tally.total > tally.done:
            folded.append(f"not run: {tally.total - tally.done} more")
        if folded and not result.of_file:
            blocks.append(Padding(plain(" · ".join(folded), "dim"), (1, 0, 0, 0)))
        ended = "" if result.of_file or result.outcome == "failed" else f"  {result.outcome.replace('_', ' ')}"
        name = result.fault_of_file or result.title
        if self._place is not None:
            words = " ".join(f"{name}:{ended} {within(result.message, LETTERS)}".split())
            self._console.print(plain(f"{self._place(result, file)}: error: {words}"), soft_wrap=True)
            self._console.print(Padding(Group(*above, *blocks), (0, 0, 0, 4)))
            return
        title = Text.assemble((f"{mark} {file}", style), "  ", plain(name, "bold"), (ended, style))
        tries = plain(result.tries, "dim") if result.tries not in ("", name) and not result.of_file else None
        panel = Panel(
            Group(*above, Styled(first, "bold"), *blocks),
            title=title,
            title_align="left",
            subtitle=tries,
            subtitle_align="left",
            border_style="red",
        )
        self._console.print(panel)

    def finish(self, report: Report | None) -> None:
        """Show infrastructure faults, kernels, prints and notes of the whole check. `report` is None if nothing was run."""
        self._now = None
        if report is None:
            if not self.mistakes:
                self._console.print(plain("nothing to check yet", "dim"))
            return
        self.infra_errors = report.infra_errors
        for fault in report.infra_errors:
            self._console.print(plain(f"not graded: {fault}", "bold magenta"))
        for one in report.assignments:
            for block in hints(one):
                self._console.print(block)
            if one.kernels:
                self._console.print(kernels_view(one.kernels, file=one.file))
            for block in printed(one, one.file):
                self._console.print(block)
        for note in report.submission.notes:
            self._console.print(plain(f"note: {note}", "yellow"))
        for line in left_open(report) if self._some_right else []:
            self._console.print(line)
        if self._with_inputs:
            again = " ".join([self._command, *(f"-a {one}" for one in self._with_inputs), f"--seed {report.seed}"])
            self._console.print(plain(f"the same inputs again: {again}", "dim"), soft_wrap=True)


def left_open(report: Report) -> list[RenderableType]:
    """What this check says nothing about, for the student."""
    if report.environment.device == "cuda":
        return [plain("not part of a check: speed; `grader run` grades it", "dim")]
    skipped: Counter[str] = Counter()
    for case in (case for _, part in report.parts for case in part.cases):
        if case.outcome == "skipped" and not case.message.startswith(NOT_RUN):
            skipped[case.message.removeprefix("needs a GPU: ")] += 1
    has_triton = any(one.file.endswith(".py") for one in report.assignments)
    compiling = "; whether Triton kernels compile for a GPU, which `grader run` tells" if has_triton else ""
    reasons = [plain(f"{reason} ({counted(count, 'case')})", "dim") for reason, count in skipped.items()]
    below: list[RenderableType] = [Padding(reason, (0, 0, 0, 2), expand=False) for reason in reasons]
    told = plain(f"not part of this check: speed, which needs a GPU{compiling}", "dim")
    return [told, plain("skipped without a GPU:", "dim"), *below] if below else [told]
