"""The processes of a grading, the walls between them, and all that crosses the walls.

tests/repository/test_pictures.py holds the rooms and the crossings against the imports of the source.
"""

from __future__ import annotations

from dataclasses import dataclass

from docs.pictures.drawing import WIDTH, arrow, box, heading, picture
from grader.report.svg import Mark, Plot, label


@dataclass(frozen=True)
class Process:
    """A kind of process.

    rooms: of docs/HOUSE.md, whose code runs in this process and in no other.
    place: x, y, width and height of its box.
    """

    name: str
    rooms: tuple[str, ...]
    says: tuple[str, ...]
    place: tuple[float, float, float, float]
    look: str


@dataclass(frozen=True)
class Crossing:
    """What passes a wall, from a room to a room; both import the room `form`, which says how it looks.

    path: of its arrow, from x, y to x, y.
    """

    words: str
    start: str
    end: str
    form: str
    path: tuple[float, float, float, float]


FRONT = Process(
    "grader run",
    (
        "cli.py",
        "console.py",
        "check.py",
        "profile/command.py",
        "classroom/",
        "grading.py",
        "workfolder.py",
        "cleanup.py",
        "doctor/",
        "sandbox/",
        "report/",
    ),
    ("takes a copy of the folder, starts a judge, shows and writes the report",),
    (0, 46, WIDTH, 80),
    "tint-good",
)
JUDGE = Process(
    "judge",
    ("judge/", "pool/", "problem.py"),
    (
        "owns seeds, inputs, oracle and clocks,",
        "and decides every verdict;",
        "never imports, unpickles or evaluates",
        "anything of a submission;",
        "has PyTorch and the staff's kernels",
        "run in workers of their own",
    ),
    (20, 226, 270, 210),
    "tint-good",
)
WORKER = Process(
    "worker",
    ("worker/",),
    (
        "runs the student's code;",
        "sees a copy of the folder,",
        "Python's packages, scratch;",
        "in bubblewrap nothing else,",
        "and no network",
    ),
    (544, 258, 222, 164),
    "tint-bad",
)
PROCESSES = (FRONT, JUDGE, WORKER)
SHARED = (
    "protocol.py", "background.py", "nvidia.py", "course.py", "runfolder.py", "report/model.py", "profile/model.py", "gpu_table.py",
    "assignment.py", "fingerprint.py", "submission.py", "messages.py", "verdict/", "profile/",
)  # fmt: skip
IN_A_ROW = 7  # rooms
JAIL = (530, 226, 250, 210)
CONTAINER = (0, 188, WIDTH, 266)
ARENA = (322, 362, 176, 62)
REQUEST = Crossing("a request: JSON", "sandbox/", "judge/", "messages.py", (120, 126, 120, 226))
EVENTS = Crossing("events, the last with the report: JSON", "judge/", "sandbox/", "messages.py", (220, 226, 220, 126))
REQUESTS = Crossing("requests: JSON frames", "pool/", "worker/", "protocol.py", (290, 276, 544, 276))
REPLIES = Crossing("replies: believed in nothing", "worker/", "pool/", "protocol.py", (544, 322, 290, 322))
TENSORS = Crossing("tensors: bytes", "pool/", "worker/", "protocol.py", (290, 392, 544, 392))
CROSSINGS = (REQUEST, EVENTS, REQUESTS, REPLIES, TENSORS)


def house() -> Plot:
    marks = heading(
        "The submission never runs in the process that grades it",
        "Three kinds of processes, the rooms of grader/ that run in each, and all that passes between them",
    )
    marks += [box(*CONTAINER, "frame dashed", 8), box(*JAIL, "wall", 6)]
    x, y, width, _ = CONTAINER
    marks.append(
        label(x + width - 12, y + 16, "sandbox: this host, or a container for each submission", "quiet", "end")
    )
    marks.append(
        label(JAIL[0] + JAIL[2] / 2, JAIL[1] + 16, "jail: bubblewrap, or another user", "strong bad", "middle")
    )
    for process in PROCESSES:
        marks += drawn(process)
    for one in (REQUEST, EVENTS):
        marks += arrow(*one.path)
        left, over = (one.path[0] - 8, "end") if one is REQUEST else (one.path[0] + 8, "start")
        marks.append(label(left, 156, one.words, "", over))
    for one in (REQUESTS, REPLIES):
        marks += arrow(*one.path)
        marks.append(label((JUDGE.place[0] + JUDGE.place[2] + JAIL[0]) / 2, one.path[1] - 12, one.words, "", "middle"))
    marks += memory()
    marks.append(label(0, 478, "grader run and the judge both know", "strong"))
    marks.append(label(0, 498, "   ".join(SHARED[:7]), "code"))
    marks.append(label(0, 516, "   ".join(SHARED[7:]), "code"))
    marks.append(label(WIDTH, 478, f"worker/ knows {REQUESTS.form} and nothing else", "strong", "end"))
    description = (
        f"{FRONT.name} sends the judge a request and gets events back. The judge and its workers are in a sandbox, on this host or in a "
        "container. Workers run the student's code in a jail; the judge sends requests as JSON frames and believes no reply. Tensors lie "
        "in the arena, memory of the judge that the worker maps."
    )
    return picture("house", "Processes and walls of a grading", description, 526, marks)


def drawn(process: Process) -> list[Mark]:
    """A process: its name, its rooms, and what it does."""
    x, y, width, height = process.place
    marks = [box(x, y, width, height, process.look), label(x + 12, y + 18, process.name, "strong")]
    at = y + 36
    for start in range(0, len(process.rooms), IN_A_ROW):
        marks.append(label(x + 12, at, "   ".join(process.rooms[start : start + IN_A_ROW]), "code"))
        at += 16
    return [*marks, *(label(x + 12, at + 5 + 18 * number, words, "quiet") for number, words in enumerate(process.says))]


def memory() -> list[Mark]:
    """The arena, in the judge's memory and mapped by the worker."""
    x, y, width, _ = ARENA
    start, at, end, _ = TENSORS.path
    marks = [*arrow(x, at, start, at), *arrow(x + width, at, end, at), box(*ARENA, "tint-own thick")]
    marks.append(label(x + width / 2, y + 16, "arena", "strong own", "middle"))
    marks.append(label(x + width / 2, y + 33, TENSORS.words, "", "middle"))
    return [*marks, label(x + width / 2, y + 50, "the judge's memory, mapped", "small quiet", "middle")]
