"""Archives as learning platforms make them, by the names and the settings that their own code gives to its packer."""

from __future__ import annotations

import csv
import io
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Handed:
    """What one person, or a group, handed in."""

    name: str  # as Ada Lovelace
    files: Files = field(default_factory=lambda: {"softmax.py": b"def softmax(x): ...\n"})
    number: int = 0
    late: bool = False
    together_with: Sequence[str] = ()

    @property
    def login(self) -> str:
        return login(self.name)


def login(name: str) -> str:
    return re.sub(r"\W", "", name.split()[0][:1].casefold() + name.split()[-1].casefold())


def sid(name: str) -> str:
    return f"0{zlib.crc32(name.encode()) % 100_000:05}"  # the zero is part of it


def roster(names: Sequence[str]) -> str:
    return "Name,Email,SID,Login\n" + "".join(f"{one},{login(one)}@uni.edu,{sid(one)},{login(one)}\n" for one in names)


class _Unflagged(zipfile.ZipInfo):
    """A file whose name is in UTF-8 without the flag that says so, as rubyzip and macOS write it."""

    def _encodeFilenameFlags(self) -> tuple[bytes, int]:  # noqa: N802  (a name of zipfile's)
        return self.filename.encode(), 0


def zipped(files: Mapping[str, bytes | None], *, in_utf8: bool = True) -> bytes:
    """A zip with these files, and folders where the content is None."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            info = (zipfile.ZipInfo if in_utf8 else _Unflagged)(name, (2026, 11, 20, 12, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content or b"")
    return out.getvalue()


def gradescope(handed: Sequence[Handed], root: str = "assignment_8046601_export/") -> dict[str, bytes | None]:
    files: dict[str, bytes | None] = {}
    text = "---\n"
    for number, one in enumerate(handed, 9001):
        folder = f"submission_{one.number or number}"
        text += f"{folder}:\n  :submitters:\n"
        for name in (one.name, *one.together_with):
            text += f"  - :name: {name}\n    :sid: '{sid(name)}'\n    :email: {login(name)}@uni.edu\n"
        text += "  :created_at: 2026-11-20 13:58:29.442126000 Z\n  :score: 0.0\n  :status: processed\n  :results:\n"
        text += "    tests:\n    - name: 'n: 1'\n      output: \"a\\tb\"\n  :history: []\n"
        files |= {f"{root}{folder}/{path}": content for path, content in one.files.items()}
    return {f"{root}submission_metadata.yml": text.encode(), **files}


def canvas(handed: Sequence[Handed], of_groups: bool = False) -> dict[str, bytes | None]:
    """Canvas' zip; of an assignment that is graded by groups, `name` is a group's, `number` that of one of its students."""
    files: dict[str, bytes | None] = {}
    file_id = 50_000
    for number, one in enumerate(handed, 1001):
        first, _, family = one.name.rpartition(" ")
        squashed = re.sub(r"[^\w]", "", (one.name if of_groups else f"{family}, {first}").lower())
        for name, content in one.files.items():
            file_id += 7
            files[f"{squashed}{'_LATE' if one.late else ''}_{one.number or number}_{file_id}_{name}"] = content
    return files


def canvas_of_groups(handed: Sequence[Handed]) -> dict[str, bytes | None]:
    return canvas(handed, of_groups=True)


def canvas_groups(groups: Mapping[str, Sequence[str]], with_sis: bool = True) -> str:
    """The list of a group set's groups, as Canvas downloads it; students of the group "" are in none."""
    columns = ["name", "canvas_user_id", "user_id", "login_id", "sections", "group_name", "canvas_group_id", "group_id"]
    rows: list[list[object]] = [[*columns]]
    for number, (group, names) in enumerate(groups.items(), 71):
        for name in names:
            first, _, family = name.rpartition(" ")
            rows.append([f"{family}, {first}", 1000 + len(rows), sid(name), login(name), "A", group, number, ""])
    out = io.StringIO()
    kept = [at for at, column in enumerate(columns) if with_sis or column not in ("user_id", "group_id")]
    csv.writer(out, lineterminator="\n").writerows([row[at] for at in kept] for row in rows)
    return out.getvalue()


def moodle(handed: Sequence[Handed]) -> dict[str, bytes | None]:
    files: dict[str, bytes | None] = {}
    for number, one in enumerate(handed, 657_001):
        folder = f"{one.name}_{one.number or number}_assignsubmission_"
        files |= {f"{folder}file_/{name}": content for name, content in one.files.items()}
    return files


def folders(handed: Sequence[Handed]) -> dict[str, bytes | None]:
    return {f"{one.login}/{name}": content for one in handed for name, content in one.files.items()}


def clones(handed: Sequence[Handed]) -> dict[str, bytes | None]:
    files: dict[str, bytes | None] = {}
    for one in handed:
        folder = f"lab-1-submissions/lab-1-{one.login}"
        files[f"{folder}/.git/HEAD"] = b"ref: refs/heads/main\n"
        files |= {f"{folder}/{name}": content for name, content in one.files.items()}
    return files


def unpacked(files: Mapping[str, bytes | None], folder: Path) -> Path:
    """The files in a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(content)
    return folder
