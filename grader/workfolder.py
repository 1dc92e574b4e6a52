"""`grader init`: makes a student's folder with the stubs, the handouts with their pictures, and a README."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grader.assignment import Assignment

HANDOUTS = "handouts"
GITIGNORE = """\
__pycache__/
*.pyc
.venv/
grader-report/
*.so
*.o
*.cubin
*.ptx
"""
README = """\
# {title}

| assignment | your file | what is asked | points |
|---|---|---|---|
{rows}

Work on the files beside this one; each starts with what is checked and the steps to take. Then:

    grader check                # the first mistake in each file, in seconds; without a GPU too
    grader check --watch        # the same again whenever you save
    grader check -a {first}   # one assignment alone
    grader run .                # everything, with points; speed needs a GPU

In VS Code, `Run Build Task` (Ctrl+Shift+B) is `grader check --watch`: mistakes stand at their lines. For other editors there is
`grader check --format=gcc`.

Files that are still as they came count as not handed in. You may add modules of your own and import them. What you hand in is
this folder; `handouts/`, hidden files and whatever else is no source file are ignored.
"""

# A task of VS Code: `Tasks: Run Build Task` checks again at each save, and the first mistake stands at its line in the editor.
TASKS = r"""{
  "version": "2.0.0",
  "tasks": [
    {
      "label": "grader check --watch",
      "type": "shell",
      "command": "grader check --watch --format=gcc",
      "isBackground": true,
      "group": { "kind": "build", "isDefault": true },
      "problemMatcher": {
        "owner": "grader",
        "source": "grader check",
        "fileLocation": ["relative", "${workspaceFolder}"],
        "pattern": { "regexp": "^([^:]+):(\\d+): (error): (.*)$", "file": 1, "line": 2, "severity": 3, "message": 4 },
        "background": {
          "activeOnStart": true,
          "beginsPattern": " saved at \\d\\d:\\d\\d:\\d\\d",
          "endsPattern": "^waiting for the next save"
        }
      }
    }
  ]
}
"""


class FolderError(Exception):
    """The folder cannot be made; the message says why."""


def make_folder(course: Path, assignments: Sequence[Assignment], target: Path) -> list[Path]:
    """Fill `target` with every assignment's stub, handout and pictures, a README, a .gitignore and a task of VS Code.

    The folder may exist, as a fresh git clone does, but nothing in it is overwritten.

    Raises:
        FolderError: a file is in the way, or the folder cannot be written to.
    """
    contents: dict[Path, str] = {Path(".gitignore"): GITIGNORE, Path(".vscode/tasks.json"): TASKS}
    rows = []
    for one in assignments:
        stub, handout = course / "starter" / one.spec.file, one.folder / "README.md"
        points = f"{one.points:g}"
        told = ""
        if handout.is_file():
            told = f"[{HANDOUTS}/{one.name}.md]({HANDOUTS}/{one.name}.md)"
            for path in (handout, *sorted(one.folder.glob("*.svg"))):  # a handout shows the pictures beside it
                name = f"{one.name}.md" if path == handout else path.name
                contents[Path(HANDOUTS, name)] = path.read_text(encoding="utf-8")
        if stub.is_file():
            contents[Path(one.spec.file)] = stub.read_text(encoding="utf-8")
        rows.append(f"| {one.spec.title} | `{one.spec.file}` | {told} | {points} |")
    title = "GPU lab assignments" if len(assignments) > 1 else assignments[0].spec.title
    contents[Path("README.md")] = README.format(title=title, rows="\n".join(rows), first=assignments[0].name)
    try:
        if target.exists() and not target.is_dir():
            raise FolderError(f"{target}: is a file; name a folder")
        taken = [str(path) for path in contents if (target / path).exists() or (target / path).is_symlink()]
    except OSError as error:
        raise FolderError(f"{target}: cannot be used ({error.strerror})") from None
    if taken:
        raise FolderError(f"{target}: nothing was written, for these would be overwritten: {', '.join(sorted(taken))}")
    made = []
    try:
        for path, text in contents.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            with (target / path).open("x", encoding="utf-8") as file:
                file.write(text)
            made.append(path)
    except OSError as error:
        raise FolderError(f"{error.filename or target}: cannot be written ({error.strerror})") from None
    return made
