"""Makes a sample of a report: a grading on this machine, as report.json and as the terminal shows it.

    python benchmarks/sample_report.py docs/sample/gpu [option of `grader run` ...]    grade reference/ and write both files
    python benchmarks/sample_report.py docs/sample/wrong --submission FOLDER [...]      the same of a folder, also of tests/corpora/mutants/
    python benchmarks/sample_report.py --render                                         write what the terminal shows of every sample again

The sample says nothing of where the grading's files lay: paths are cut to the repository, or to Python's packages.
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.records import text_of  # noqa: E402
from grader.report.json_file import REPORT  # noqa: E402
from grader.report.model import Report  # noqa: E402
from grader.report.terminal import ReportConsole, print_report  # noqa: E402

SAMPLES = ROOT / "docs" / "sample"
TERMINAL = "terminal.txt"


def make(folder: Path, submission: Path, options: list[str]) -> None:
    """Grade a submission and write its report. Raises CalledProcessError where nothing was graded."""
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as scratch:
        if (submission / "mutant.toml").is_file():
            from tests.support.corpus import Entry

            submission = Entry(submission.resolve()).submission(Path(scratch))
        command = [sys.executable, "-m", "grader", "run", str(submission), "--output", made, *options]
        subprocess.run(command, cwd=ROOT, check=True)
        text = Path(made, REPORT).read_text(encoding="utf-8")
    own = f"{submission.resolve().parent}/"
    for path, short in ((sysconfig.get_path("purelib"), "site-packages"), (f"{ROOT}/", ""), (own, "")):
        text = text.replace(path, short)
    report = json.loads(text)
    report["environment"]["platform"] = platform.system()  # without the release of this machine's kernel
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REPORT).write_text(text_of(report, "report"), encoding="utf-8")
    (folder / TERMINAL).write_text(shown(folder), encoding="utf-8")


def shown(folder: Path) -> str:
    """What the terminal shows of the report in this folder, 120 columns wide."""
    console = ReportConsole(file=io.StringIO(), force_terminal=False, color_system=None, highlight=False, width=120)
    with console.capture() as capture:
        print_report(Report.model_validate_json((folder / REPORT).read_bytes()), console)
    return capture.get()


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes a sample of a report, from a grading.")
    parser.add_argument("folder", nargs="?", type=Path, help="where the sample goes, as docs/sample/gpu")
    parser.add_argument("--submission", type=Path, default=Path("reference"), help="the folder to grade")
    parser.add_argument("--render", action="store_true", help="write what the terminal shows of every sample again")
    arguments, options = parser.parse_known_args()
    if (arguments.folder is None) is not arguments.render:
        parser.error("name a folder, or --render")
    if arguments.folder is not None:
        make(arguments.folder, arguments.submission, options)
    else:
        for report in SAMPLES.glob(f"*/{REPORT}"):
            (report.parent / TERMINAL).write_text(shown(report.parent), encoding="utf-8")


if __name__ == "__main__":
    main()
