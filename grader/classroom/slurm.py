"""A class on a cluster: one task of a Slurm job array for each hand-in that is left, or for a few of them.

Slurm is the queue; the folder of the class is the memory. `submit` writes a batch, RUN/slurm/batch.<n>/: the hand-ins of each array task,
and the job's script, which runs `grader class run RUN --only ...` on a node. A job's name says its class and its batch, so that `submit`
can ask the queue which hand-ins still wait there or are graded; the others that are left go into the next batch. A grading that Slurm
starts twice, or that two jobs have, is made once: `class run` locks the hand-in, and grades nothing that is graded.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from grader.classroom.folder import ClassError, RunFolder, write_whole
from grader.classroom.tasks import read_tasks
from grader.report.style import counted
from grader.sandbox.base import InfraError

TASKS, SCRIPT = "tasks.txt", "job.sh"
MOST_TASKS = 1000  # of an array, as Slurm's MaxArraySize allows if nobody has changed it
LIMIT_S = 60.0  # of sbatch and squeue
JOB = """\
#!/bin/sh
# Made by `grader class submit`: an array task grades the hand-ins of its line in tasks.txt.
set -eu
number=${{SLURM_ARRAY_TASK_ID:-}}
if [ -z "$number" ]; then  # a Kubernetes Indexed Job counts from 0
    : "${{JOB_COMPLETION_INDEX:?neither this nor SLURM_ARRAY_TASK_ID says which line of tasks.txt}}"
    number=$((JOB_COMPLETION_INDEX + 1))
fi
set --
for handin in $(sed -n "${{number}}p" {tasks}); do
    set -- "$@" --only "$handin"
done
[ $# -gt 0 ] || {{ echo "no line $number in tasks.txt" >&2; exit 2; }}
# One grading for each: a hand-in that the machine spoils goes to another node, by the next `submit`.
exec {python} -m grader class run {run} --limit $(($# / 2)) "$@"
"""


def submit(
    folder: RunFolder,
    options: Sequence[str] = (),
    each: int = 1,
    at_once: int | None = None,
    only_write: bool = False,
) -> list[str]:
    """Submit what is left of a class and is not in the queue. Returns sentences about it.

    Args:
        options: of sbatch, as `--partition=gpu`; they come after the grader's own, so they prevail.
        each: how many hand-ins an array task has; more where an array would be larger than MOST_TASKS.
        at_once: how many array tasks run at a time; None for no limit.
        only_write: write the batch, submit nothing and ask no queue.

    Raises:
        ClassError: the folder is no class, or Slurm is not here.
        InfraError: Slurm failed.
        OSError: the batch cannot be written.
    """
    left = [one.handin for one in read_tasks(folder) if one.state == "left"]
    batches = [one for one in (folder.path / "slurm").glob("batch.*") if one.suffix[1:].isdecimal()]
    queued: set[str] = set()
    if not only_write and (names := {_name(folder, one): one / TASKS for one in batches if (one / TASKS).exists()}):
        for line in ask(["squeue", "--noheader", "--array", "--format=%K %j"]).splitlines():
            index, _, name = line.strip().partition(" ")
            if name in names and index.isdigit():
                tasks = names[name].read_text(encoding="utf-8").splitlines()
                queued.update(*(one.split() for one in tasks[int(index) - 1 : int(index)]))
    new = [one for one in left if one not in queued]
    told = [f"{len(left) - len(new)} in the queue already"] * (len(left) > len(new))
    if not new:
        return [*told, "nothing else is left to submit"]
    size = max(each, -(-len(new) // MOST_TASKS))
    lines = [" ".join(new[at : at + size]) for at in range(0, len(new), size)]
    batch = folder.path / "slurm" / f"batch.{1 + max((int(one.suffix[1:]) for one in batches), default=0)}"
    batch.mkdir(parents=True)  # of two `submit` at the same time one fails here
    write_whole(batch / TASKS, "\n".join(lines) + "\n")
    words = {"tasks": batch.resolve() / TASKS, "python": sys.executable, "run": folder.path.resolve()}
    write_whole(batch / SCRIPT, JOB.format(**{name: shlex.quote(str(word)) for name, word in words.items()}))
    handins = counted(len(new), "hand-in")
    if only_write:
        return [*told, f"{batch}: {handins}, not submitted"]
    limit = f"%{at_once}" if at_once else ""
    command = ["sbatch", "--parsable", f"--job-name={_name(folder, batch)}", f"--array=1-{len(lines)}{limit}"]
    run = folder.run()
    # Speed needs a GPU, and so does what has begun on one or was told to be on one.
    if run.device == "cuda" or (run.device == "auto" and (run.speed or run.gpu)):
        command.append("--gres=gpu:1")
    command += ["--requeue", f"--output={batch / 'task-%a.txt'}", "--open-mode=append"]
    job = ask([*command, *options, str(batch / SCRIPT)]).strip().split(";")[0]  # "number;cluster" of a federation
    return [*told, f"job {job}: {handins}; `grader class status {folder.path}` says how far it is"]


def ask(command: Sequence[str]) -> str:
    """The output of one of Slurm's programs. Raises ClassError: it is not here; InfraError: it failed."""
    if shutil.which(command[0]) is None:
        words = "submit where Slurm is, or use `grader class run` on a machine with GPUs"
        raise ClassError(f"there is no {command[0]} on this machine; {words}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise InfraError(f"{command[0]} gave no answer within {LIMIT_S:g} s") from None
    if done.returncode != 0:
        raise InfraError(f"{command[0]} failed: {' '.join((done.stderr or done.stdout).split())[:500]}")
    return done.stdout


def _name(folder: RunFolder, batch: Path) -> str:
    """The name of a batch's job: no other class and no other batch has it."""
    return f"grader-{hashlib.sha256(os.fsencode(folder.path.resolve())).hexdigest()[:12]}-{batch.name}"
