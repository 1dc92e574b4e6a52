"""A report for its student: what is left out of it, and what stays."""

from __future__ import annotations

import json

import pytest

from grader.report.model import ContainerLimits, Isolation, Report, SourceLines
from grader.report.page import page
from grader.report.redact import FAULT, PATH, UNSEEN_LOG, redacted
from tests.report.building import make_case, make_part, make_report

SECRETS = (
    "4711",
    "/home/ta",
    "CS 149",
    "bob",
    "carol",
    "secret-host",
    "10.0.0.7",
    "ab12digest",
    "reachable files",
    "feed" * 16,
)


@pytest.fixture
def report() -> Report:
    """A report with something that no student is to see, wherever such a thing can be."""
    where = "/home/ta/CS 149/alice"
    wrong = make_case(
        "n-3", "failed", message=f"NameError in {where}/softmax.py", traceback='  File "softmax.py", line 7\n'
    )
    broken = make_case(
        "n-4",
        "infra_error",
        message="another program is using this GPU (processes 7 of bob on secret-host)",
        diagnosis=("10.0.0.7 did not answer",),
        traceback='  File "reference.py", line 3, the work of carol\n',
    )
    made = make_report(make_part(make_case(), wrong, broken), log=f"[n-1] I am in {where}/scratch\n")
    (assignment,) = made.assignments
    source = SourceLines(file="softmax.py", first=7, lines=("y = a/b/c; z = ' /my/own/path'",), blamed=(7,))
    environment = made.environment.model_copy(update={"platform": "Linux secret-host"})
    return made.model_copy(
        update={
            "assignments": (assignment.model_copy(update={"sources": (source,)}),),
            "submission": made.submission.model_copy(update={"path": where}),
            "environment": environment,
            "isolation": Isolation(
                sandbox="docker",
                jail="bubblewrap",
                image="ab12digest",
                note="reachable files",
                limits=ContainerLimits(memory_gib=3, cpus=2, pids=9),
            ),
            "infra_errors": ("the driver of secret-host was lost, see /home/ta/log",),
            "fingerprint": "feed" * 16,
        }
    )


def test_a_student_sees_nothing_of_the_machine_or_of_others(report: Report) -> None:
    whole, shown = page(report), page(report, redact=True)
    for secret in SECRETS:
        if secret not in ("4711", "feed" * 16):
            assert secret in whole, f"{secret} would not be missed"
        assert secret not in shown
        assert secret not in redacted(report).model_dump_json()
    for fact in ("isolation", "seed", "system"):
        assert f">{fact}<" in whole
        assert f">{fact}<" not in shown
    assert "grader run" in whole
    assert "grader run" not in shown
    assert FAULT in shown


def test_a_student_sees_all_of_the_own_work(report: Report) -> None:
    shown = page(report, redact=True)
    for own in (
        "alice",
        "NameError in …/alice/softmax.py",
        "I am in …/alice/scratch",
        "y = a/b/c; z = &#39; /my/own/path&#39;",
        "torch 2.13",
    ):
        assert own in shown
    found = redacted(report)
    assert (found.score, found.submission.sha256) == (report.score, report.submission.sha256)
    assert [case.outcome for case in found.assignments[0].parts[0].cases] == ["passed", "failed", "infra_error"]


def test_the_log_of_a_submission_that_could_read_others_is_left_out(report: Report) -> None:
    loose = report.model_copy(update={"isolation": Isolation(jail="none", note="reachable files")})
    shown = page(loose, redact=True)
    assert "I am in" in page(loose)
    assert "I am in" not in shown
    assert UNSEEN_LOG in shown


def test_no_field_of_a_report_is_forgotten() -> None:
    """Who adds a field to a report decides here whether a student may see it."""
    known = {
        "": "schema_version started duration_s seed effort isolation environment fingerprint submission score correctness speed "
        "assignments incomplete infra_errors",
        "SubmissionInfo": "path sha256 files notes",
        "Environment": "grader python torch triton device gpu gpu_memory_gib driver cuda nvcc cpu platform",
        "AssignmentResult": "name title file parts kernels hints sources log",
        "CaseResult": "name tries outcome message diagnosis traceback of_file errors map follows gpu_time time_s",
        "SpeedCaseResult": "name size outcome message diagnosis traceback points bands measured time_s",
        "WorkerLog": "text others total_bytes",
    }
    schema = Report.model_json_schema()
    for name, fields in known.items():
        assert set((schema["$defs"][name] if name else schema)["properties"]) == set(fields.split()), name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("in /usr/lib/python3/torch/nn.py, line 3", "in …/nn.py, line 3"),
        ('File "/tmp/x/y z.py"', 'File "…/y z.py"'),
        ("file:///etc/ssh/key ~/.ssh/id ~ta/x/y", "…/key …/id …/y"),
        (r"at C:\Users\ta\x.py", "at …/x.py"),
        (r"at \\server\share\ta\x.py", "at …/x.py"),
        ("in //home//ta//x.py, line 3", "in …/x.py, line 3"),
        ("see https://docs.nvidia.com/cuda/a.html", "see https://docs.nvidia.com/cuda/a.html"),
        ("(/a/b/c)", "(…/c)"),
        ("PYTHONPATH=/home/bob:/srv/staff/x", "PYTHONPATH=…/bob:…/x"),
        ("nvcc -I/srv/staff/include -L/opt/cuda/lib", "nvcc -I…/include -L…/lib"),
        (
            "a/b/c.py, 1/2/3, x / y / z, https://pytorch.org/docs/x",
            "a/b/c.py, 1/2/3, x / y / z, https://pytorch.org/docs/x",
        ),
        ("//comment /* and */ 1 //2", "//comment /* and */ 1 //2"),
    ],
)
def test_paths_keep_their_last_name(text: str, shown: str) -> None:
    assert PATH.sub("…/", text) == shown


def test_words_that_take_long_to_search_do_not() -> None:
    for evil in ("/a" * 100_000, "/" * 200_000, "~/" * 100_000, "C:\\" + "a\\" * 90_000):
        redacted(make_report(make_part(make_case("n", "failed", message="x")), log=evil[:200_000]))


def test_a_relative_path_loses_its_folders(report: Report) -> None:
    info = report.submission.model_copy(update={"path": "subs/alice"})
    text = json.dumps(
        redacted(report.model_copy(update={"submission": info})).model_dump(mode="json"), ensure_ascii=False
    )
    assert '"path": "alice"' in text
