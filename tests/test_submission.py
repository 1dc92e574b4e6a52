"""Staging takes what a submission needs and nothing else, whatever lies in a student's folder, and only reads it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from grader import submission
from grader.messages import Request, Staged
from grader.submission import (
    MAX_DEPTH,
    MAX_FILE_BYTES,
    MAX_FILES,
    SubmissionError,
    kernel_elsewhere,
    stage,
    survey,
    unfit,
)
from tests.support.open_files import open_files

WANTED = ("gelu.cu", "softmax.py")
ROOT = Path(__file__).parents[1]
Stage = Callable[..., Staged]
WITHOUT_POWERS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A student's folder with one file that belongs there."""
    folder = tmp_path / "student"
    folder.mkdir()
    (folder / "softmax.py").write_text("def softmax(x): ...\n")
    return folder


@pytest.fixture
def staged(source: Path, tmp_path: Path) -> Stage:
    """Stage the student's folder into a new one."""
    numbers = iter(range(100))

    def staged(folder: Path = source) -> Staged:
        return stage(folder, tmp_path / "staged" / str(next(numbers)), WANTED)

    return staged


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def laid_out(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("x")
    return folder


# What is taken --------------------------------------------------------------------------------------------------------

ORDINARY = ("A-b_c.d+e.py", "two words.py", "x (1).py", "_x.py", "9.py", "x" * 97 + ".py")


def test_files_are_copied_as_they_are(source: Path, tmp_path: Path, staged: Stage) -> None:
    laid_out(source, "lib/tiles.py", *ORDINARY)
    (source / "gelu.cu").write_bytes(b"// \xc3\xbc\r\n")
    (source / "softmax.py").write_text("x = 1", encoding="utf-16")  # of which the judge tells more
    (source / "most.py").write_bytes(b"x" * MAX_FILE_BYTES)
    (tmp_path / "link").symlink_to(source)
    for folder in (source, tmp_path / "link"):
        taken = staged(folder)
        assert files(taken.folder) == files(source)
        assert taken.info.files == tuple(sorted(["gelu.cu", "softmax.py", "lib/tiles.py", "most.py", *ORDINARY]))
        assert (taken.info.path, taken.info.notes, taken.refused) == (str(source), (), {})
        assert (taken.folder / "softmax.py").stat().st_mode & 0o777 == 0o444


def test_the_source_is_only_read_and_no_file_is_left_open(source: Path, staged: Stage) -> None:
    laid_out(source, "sub/inner/a.py", "sub/pipe.py/a.py")
    (source / "sub" / "inner" / "a.py").chmod(0o600)
    (source / "link.py").symlink_to("softmax.py")
    (source / "big.py").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    os.mkfifo(source / "sub" / "inner" / "pipe.py")

    def state() -> dict[str, tuple[int, ...]]:
        every = [source, *source.rglob("*")]
        return {
            str(path): (s.st_mode, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_nlink)
            for path in every
            for s in [path.lstat()]
        }

    before, open_before = state(), open_files(first=True)
    staged()
    assert (state(), open_files()) == (before, open_before)


def test_what_may_be_a_misnamed_file_is_copied_on_request(source: Path, tmp_path: Path) -> None:
    laid_out(source, "gelu.ipynb", "gelu.c", "gelu.png")
    asked = stage(source, tmp_path / "copy", WANTED, misnamed=True)
    assert asked.info.files == ("gelu.c", "gelu.ipynb", "softmax.py")
    assert set(asked.refused) == {"gelu.png"}


@pytest.mark.parametrize("name", ["a.py", "a.ipynb", "a.png", "a", ".py"])
@pytest.mark.parametrize("size", [0, MAX_FILE_BYTES, MAX_FILE_BYTES + 1])
def test_a_file_is_unfit_before_it_is_read_where_stage_refuses_it(
    name: str, size: int, source: Path, tmp_path: Path
) -> None:
    with (source / f"x{name}").open("wb") as file:
        file.truncate(size)
    refused = stage(source, tmp_path / "copy", WANTED, misnamed=True).refused.get(f"x{name}", "")
    assert unfit(f"x{name}", size) == ("" if refused.startswith("a binary file") else refused)


# What is not ----------------------------------------------------------------------------------------------------------


def test_links_are_not_followed(source: Path, tmp_path: Path, staged: Stage) -> None:
    """A link could point at the reference, or at a file of the teacher who grades."""
    (tmp_path / "reference").mkdir()
    (tmp_path / "reference" / "gelu.cu").write_text("// the answer")
    (source / "gelu.cu").symlink_to(tmp_path / "reference" / "gelu.cu")
    (source / "again.py").symlink_to("softmax.py")
    (source / "nowhere.py").symlink_to("/does/not/exist.py")
    (source / "lib").symlink_to(tmp_path / "reference")
    (source / "self").symlink_to(".")
    taken = staged()
    assert files(taken.folder) == {"softmax.py": (source / "softmax.py").read_bytes()}
    assert set(taken.refused) == {"gelu.cu", "again.py", "nowhere.py", "lib", "self"}
    assert set(taken.refused.values()) == {"a symbolic link; links are not followed"}
    (note,) = taken.info.notes
    assert note == "gelu.cu, again.py, lib, nowhere.py and self: ignored, a symbolic link; links are not followed"


@pytest.mark.parametrize(
    ("listed", "path", "becomes", "taken", "refused"),
    [
        (".", "gelu.py", "a link", ["lib/inner/a.py", "lib/tiles.py"], "cannot be read (Too many levels of symbolic links)"),
        (".", "gelu.py", "nothing", ["lib/inner/a.py", "lib/tiles.py"], "cannot be read (No such file or directory)"),
        (".", "gelu.py", "a folder", ["lib/inner/a.py", "lib/tiles.py"], "not a regular file"),
        (".", "lib", "a link", ["gelu.py"], "changed while it was read"),
        (".", "lib", "nothing", ["gelu.py"], "changed while it was read"),
        (".", "lib", "a file", ["gelu.py"], "changed while it was read"),
        (".", "lib", "a folder", ["gelu.py"], ""),
        ("lib", "lib/inner", "a link", ["gelu.py", "lib/tiles.py"], "changed while it was read"),
        ("lib", "lib", "a link", ["gelu.py", "lib/inner/a.py", "lib/tiles.py"], ""),
    ],
)  # fmt: skip
def test_what_changes_after_it_was_seen_is_not_followed(
    monkeypatch: pytest.MonkeyPatch,
    source: Path,
    tmp_path: Path,
    staged: Stage,
    listed: str,
    path: str,
    becomes: str,
    taken: list[str],
    refused: str,
) -> None:
    """A link points to somebody else's, which whoever grades may read and the student may not."""
    laid_out(source, "gelu.py", "lib/tiles.py", "lib/inner/a.py")
    for name in ("tiles.py", "inner/a.py"):
        (tmp_path / "secret" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "secret" / name).write_text("secret")
    scandir, inode = os.scandir, (source / listed).stat().st_ino

    def slow_scandir(folder: int) -> object:
        is_it = os.stat(folder).st_ino == inode
        with scandir(folder) as entries:
            found = list(entries)
        if is_it:
            (source / path).rename(tmp_path / "away")
            if becomes == "a link":
                (source / path).symlink_to(tmp_path / "secret")
            elif becomes == "a file":
                (source / path).touch()
            elif becomes == "a folder":
                (source / path).mkdir()
        return contextlib.nullcontext(found)

    monkeypatch.setattr(os, "scandir", slow_scandir)
    copy = staged()
    assert copy.info.files == (*taken, "softmax.py")
    assert copy.refused == ({path: refused} if refused else {})
    assert b"secret" not in files(copy.folder).values()


TOO_LARGE, KIND, ODD = "larger than 1 MiB", "not a kind of file that a submission needs", "an odd name; letters, digits"
NEVER_TAKEN = {
    b"more.py": (b"x" * (MAX_FILE_BYTES + 1), TOO_LARGE),
    b"notes.txt": (b"\x7fELF\0\0\0", "a binary file"),
    b"lab.ipynb": (b"{}", "a notebook, which cannot be graded: save its code as a script"),
    **dict.fromkeys([b"kernel.so", b"kernel.o", b"weights.pt", b"softmax", b"a.pyc", b"README.MD"], (b"text", KIND)),
    b"x.PY": (b"text", "the suffix must be in small letters: rename it to end in .py"),
    **dict.fromkeys(
        [
            b"new\nline.py", b"caf\xe9.py", "grün.py".encode(), b"-rf.py", b"semi;colon.py", b"$HOME.py", b"'quote.py",
            b"tab\t.py", b"\x1b[31mred.py", b"[red].py", b"x" * 101 + b".py", b"back\\slash.py", b"+x.py",
        ],
        (b"x = 1", ODD),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEVER_TAKEN)
def test_what_a_submission_does_not_need_is_refused_and_cannot_spoil_what_is_printed(
    source: Path, staged: Stage, name: bytes
) -> None:
    contents, why = NEVER_TAKEN[name]
    Path(os.fsdecode(os.fsencode(source) + b"/" + name)).write_bytes(contents)
    taken = staged()
    assert taken.info.files == ("softmax.py",)
    assert set(taken.refused) == {os.fsdecode(name)}
    assert taken.refused[os.fsdecode(name)].startswith(why)
    (note,) = taken.info.notes
    assert f": ignored, {why}" in note
    assert note.isprintable()
    request = Request(submission=source, course=source, staged=taken)
    assert len(Request.model_validate_json(request.model_dump_json().encode()).copied.refused) == 1, (
        "the judge gets it as JSON"
    )


def test_a_huge_file_is_not_read_into_memory(source: Path, staged: Stage) -> None:
    (source / "huge.py").touch()
    os.truncate(source / "huge.py", 1 << 40)
    tracemalloc.start()
    taken = staged()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken.refused == {"huge.py": TOO_LARGE}
    assert peak < 8 * MAX_FILE_BYTES


@pytest.mark.timeout(20)  # where a pipe is opened to be read, it waits for a writer for ever
@pytest.mark.parametrize("name", ["gelu.cu", "pipe.py"])
def test_a_pipe_is_refused_and_not_waited_for(source: Path, staged: Stage, name: str) -> None:
    os.mkfifo(source / name)
    assert staged().refused == {name: "not a regular file"}


def test_hidden_and_built_things_are_passed_over_without_a_word(source: Path, staged: Stage) -> None:
    folders = (".git", "__pycache__", "venv", "build", "node_modules", "grader-report")
    laid_out(source, *(f"{folder}/a.py" for folder in folders), ".env", ".hidden.py")
    taken = staged()
    assert taken.info.files == ("softmax.py",)
    assert (taken.refused, taken.info.notes) == ({}, ())


def test_too_many_files_are_refused_but_never_a_wanted_one_and_the_deepest_first(source: Path, staged: Stage) -> None:
    laid_out(source, "aaa/deep.py", *(f"a{number:03}.py" for number in range(MAX_FILES + 29)), "gelu.cu")
    taken = staged()
    assert len(taken.info.files) == MAX_FILES + 2
    assert set(WANTED) <= set(taken.info.files)
    assert len(taken.refused) == 30
    assert "aaa/deep.py" in taken.refused
    assert set(taken.refused.values()) == {f"more than {MAX_FILES} files"}
    some = "a200.py, a201.py, a202.py, a203.py, a204.py, a205.py, a206.py, a207.py and 22 more"
    assert taken.info.notes == (f"{some}: ignored, more than {MAX_FILES} files",)


def test_files_that_are_ignored_for_one_reason_are_one_note(source: Path, staged: Stage) -> None:
    laid_out(source, "essay.pdf", "plots/a.png", "lib.so")
    (source / "gelu.cu").symlink_to("softmax.py")
    kind, link = sorted(staged().info.notes, key=len, reverse=True)
    assert kind.startswith("essay.pdf, lib.so and plots/a.png: ignored, not a kind of file that a submission needs")
    assert link == "gelu.cu: ignored, a symbolic link; links are not followed"


def test_too_deep_a_folder_is_refused(source: Path, staged: Stage) -> None:
    way = [f"d{level}" for level in range(1, MAX_DEPTH + 3)]
    laid_out(source, *("/".join([*way[:level], "a.py"]) for level in range(1, MAX_DEPTH + 3)))
    taken, way = staged(), way[:MAX_DEPTH]
    assert len(taken.info.files) == MAX_DEPTH  # in the folder itself, and in d1 … d5
    assert "/".join([*way[:-1], "a.py"]) in taken.info.files
    assert taken.refused == {"/".join(way): "too deep a folder"}


def test_a_wanted_name_deep_down_does_not_pass_for_the_file_itself(source: Path, staged: Stage) -> None:
    laid_out(source, "lib/gelu.cu", "gelu.cu/gelu.cu")
    assert staged().info.files == ("gelu.cu/gelu.cu", "lib/gelu.cu", "softmax.py")


# What cannot be graded at all -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "no such folder; expected a folder with gelu.cu, softmax.py"),
        ("student/softmax.py", "is a file; expected a folder with gelu.cu, softmax.py"),
        ("empty", "is empty; expected a folder with gelu.cu, softmax.py"),
        ("built", "holds nothing but .git and build, always left out; expected a folder with gelu.cu, softmax.py"),
        ("x" * 300, "cannot be read (File name too long)"),
    ],
)
def test_what_is_no_submission_is_named_with_what_is_expected(
    source: Path, tmp_path: Path, name: str, words: str
) -> None:
    (source.parent / "empty").mkdir()
    laid_out(source.parent / "built", ".git/config", "build/softmax.py")
    with pytest.raises(SubmissionError) as error:
        stage(tmp_path / name, tmp_path / "staged", WANTED)
    assert str(error.value).startswith(str(tmp_path / name)[:200])
    assert f": {words}" in str(error.value)
    assert not (tmp_path / "staged").exists()


def test_a_folder_of_nothing_but_refused_files_can_be_graded(tmp_path: Path, staged: Stage) -> None:
    """Every assignment is then not implemented, and the notes say why."""
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "gelu.cu").symlink_to("/etc/hostname")
    taken = staged(tmp_path / "odd")
    assert (taken.info.files, len(taken.info.notes)) == ((), 1)


# What cannot be read: root reads everything, so its powers are put down first -----------------------------------------

STAGE = """
import json, sys
from pathlib import Path
from grader.submission import SubmissionError, stage
try:
    taken = stage(Path(sys.argv[1]), Path(sys.argv[2]), ("gelu.cu", "softmax.py"))
    print(json.dumps({"files": taken.info.files, "refused": taken.refused}))
except SubmissionError as error:
    print(json.dumps({"error": str(error)}))
except BaseException as error:
    print(json.dumps({"raised": repr(error)}))
"""


def stage_without_powers(source: Path, target: Path) -> dict[str, object]:
    prefix = WITHOUT_POWERS if os.geteuid() == 0 else []
    if prefix and shutil.which("setpriv") is None:
        pytest.skip("root reads every file, and there is no setpriv to give that up")
    if prefix and subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        pytest.skip("root reads every file, and setpriv may not give that up here")
    done = subprocess.run(
        [*prefix, sys.executable, "-c", STAGE, str(source), str(target)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, object] = json.loads(done.stdout)
    return result


def test_an_unreadable_file_is_refused(source: Path, tmp_path: Path) -> None:
    laid_out(source, "extra.py")
    (source / "extra.py").chmod(0)
    result = stage_without_powers(source, tmp_path / "staged")
    assert result == {"files": ["softmax.py"], "refused": {"extra.py": "cannot be read (Permission denied)"}}


@pytest.mark.parametrize(
    ("path", "given", "named"),
    [("softmax.py", "", "/softmax.py"), (".", "", ""), (".", "inner", "/inner"), ("inner", "", "/inner")],
)
def test_whatever_else_is_unreadable_ends_the_grading_with_its_name(
    source: Path, tmp_path: Path, path: str, given: str, named: str
) -> None:
    """A wanted file would be graded as not implemented, when all it lacks is a permission."""
    (source / "inner").mkdir()
    (source / path).chmod(0)
    try:
        result = stage_without_powers(source / given, tmp_path / "staged")
    finally:
        (source / path).chmod(0o700)
    assert str(result["error"]).startswith(f"{source}{named}: cannot be read (Permission denied)")


def test_the_hash_is_of_names_and_contents_alone(source: Path, staged: Stage) -> None:
    laid_out(source, "kernel.so", ".git/config", "a/c.py")  # the first two are not taken, so not counted
    (source / "a" / "c.py").write_bytes(b"")
    (source / "b.py").write_bytes(b"xyz")
    (source / "b.py").chmod(0o700)
    text = (source / "softmax.py").read_bytes()
    expected = hashlib.sha256(b"6:a/c.py:0:4:b.py:3:xyz" + f"10:softmax.py:{len(text)}:".encode() + text).hexdigest()
    assert staged().info.sha256 == expected


# Under other names, in other folders ----------------------------------------------------------------------------------

KNOWN = (*WANTED, "triton_gelu.py")


@pytest.mark.parametrize("around", ["handin/src", "Übung 2 (1)/a b", "softmax", "red\x1b[31m"])
def test_folders_around_the_files_are_entered_and_named(tmp_path: Path, around: str) -> None:
    """Archives put them there; what macOS puts beside them is no second one, nor are notes and other programs."""
    litter = ("__MACOSX/._softmax.py", "__MACOSX/handin/softmax.py", ".DS_Store", "README.md", "docs/softmax.pdf")
    source = laid_out(tmp_path, f"{around}/softmax.py", f"{around}/lib/tiles.py", f"{around}/tests/softmax.py", *litter)
    found = survey(source, WANTED, KNOWN)
    assert found.inside == around
    taken = stage(source, tmp_path / "staged", WANTED, found)
    assert taken.info.files == ("lib/tiles.py", "softmax.py", "tests/softmax.py")
    assert (taken.info.path, taken.refused, found.misnamed) == (str(source), {}, {})
    printed = around.replace("\x1b", "?")
    assert taken.info.notes == (f"the files lie in {printed}/: that folder is taken for the submission",)


@pytest.mark.parametrize(
    ("paths", "wanted", "inside"),
    [
        (["handin/softmax.py", "tests/test_softmax.py", "notebooks/softmax.ipynb"], WANTED, "handin"),
        (["Untitled.py", "gelu.cu"], WANTED, ""),  # a module of the student's own
        (["hw.zip", "gelu.cu"], WANTED, ""),
        (["triton_gelu.py", "triton_gelu (1).py"], ["softmax.py"], ""),  # another assignment's
    ],
)
def test_other_files_are_not_spoken_of(tmp_path: Path, paths: list[str], wanted: Sequence[str], inside: str) -> None:
    found = survey(laid_out(tmp_path, *paths), wanted, KNOWN)
    assert (found.inside, found.misnamed) == (inside, {})


def test_a_folder_that_becomes_a_link_after_the_survey_is_not_entered(tmp_path: Path) -> None:
    source = laid_out(tmp_path / "student", "handin/softmax.py")
    laid_out(tmp_path / "secret", "softmax.py")
    found = survey(source, WANTED)
    (source / "handin").rename(tmp_path / "away")
    (source / "handin").symlink_to(tmp_path / "secret")
    with pytest.raises(SubmissionError, match="cannot be read"):
        stage(source, tmp_path / "staged", WANTED, found)


@pytest.mark.parametrize(
    "name",
    [
        "softmax (1).py", "softmax-1.py", "softmax_1.py", "softmax2.py", "Softmax.py", "SOFTMAX.PY", "softmax.py.txt",
        "softmax.txt", "softmax", "softmax copy.py", "softmax - Copy (2).py", "Copy of softmax.py", "softmax.py.bak",
        "my_softmax.py", "soft-max.py", "alice_LATE_1234_5678_softmax-1.py", "softmax.ipynb - Colab.py", "softmax/softmax.py",
        "src/softmax (1).py",
    ],
)  # fmt: skip
def test_a_file_under_another_name_is_named_with_the_one_that_is_wanted(tmp_path: Path, name: str) -> None:
    """It is not guessed to be the one, beside other files or alone."""
    laid_out(tmp_path, "gelu.cu", name)
    found = survey(tmp_path, WANTED, KNOWN)
    words = found.misnamed["softmax.py"]
    mend = "move it out of its folder, as softmax.py" if "/" in name else "rename it to softmax.py"
    assert words == f"there is no softmax.py, but {name}: {mend}"
    assert stage(tmp_path, tmp_path / "staged", WANTED, found).info.notes == (), "it is told once"
    (tmp_path / "gelu.cu").unlink()
    shutil.rmtree(tmp_path / "staged")
    if name != "softmax/softmax.py":  # alone it is a folder around the file
        with pytest.raises(SubmissionError, match=r"there is no softmax\.py, but .*softmax\.py$"):
            survey(tmp_path, WANTED, KNOWN)


A_NOTEBOOK = "a notebook cannot be graded, so save its code as softmax.py"


@pytest.mark.parametrize(
    ("names", "mend"),
    [
        (["softmax.ipynb"], A_NOTEBOOK),
        (["Untitled0.ipynb"], A_NOTEBOOK),
        (["lab2_softmax_final.IPYNB"], A_NOTEBOOK),
        (["softmax (1).py", "softmax (2).py"], "keep the one that counts, as softmax.py"),
        (["Softmax.py", "old/softmax.py"], "keep the one that counts, as softmax.py"),
        (["my_softmax.py", "softmax_final.py"], "keep the one that counts, as softmax.py"),
        (["a.ipynb", "b.ipynb"], "keep the one that counts, as softmax.py"),
    ],
)
def test_notebooks_and_all_of_several_candidates_are_named_with_what_to_do(
    tmp_path: Path, names: list[str], mend: str
) -> None:
    laid_out(tmp_path, "gelu.cu", *names)
    words = survey(tmp_path, WANTED, KNOWN).misnamed["softmax.py"]
    assert words == f"there is no softmax.py, but {' and '.join(names)}: {mend}"


def test_the_file_itself_counts_and_a_second_copy_beside_it_is_named(tmp_path: Path) -> None:
    laid_out(
        tmp_path, "softmax.py", "softmax (1).py", "softmax-2.py", "softmax_1.py", "my_softmax.py", "old/softmax.py"
    )
    copies = ["Copia de softmax.py", "Copy of softmax.py", "Kopie von softmax.py", "softmax - Copy (2).py"]
    laid_out(tmp_path, *copies)
    found = survey(tmp_path, WANTED, KNOWN)
    assert found.misnamed == {}
    assert stage(tmp_path, tmp_path / "staged", WANTED, found).info.notes == tuple(
        f"{name} lies beside softmax.py: softmax.py is what counts"
        for name in sorted([*copies, "softmax (1).py", "softmax-2.py"])
    )


STUB = "def softmax(x):\n    raise NotImplementedError\n"
CU_STUB = '#error "gelu.cu is not implemented yet"\nextern "C" void gelu(const float* x, float* y) {\n}\n'
KERNEL = "import triton\n\n\ndef softmax(x):\n    return x\n"
CU_KERNEL = '// gelu(x)\nextern "C" void gelu(const float* x,\n                     float* y) {\n  y[0] = 1;\n}\n'


def notebook(code: str, indent: int | None = 1) -> str:
    return json.dumps(
        {"cells": [{"source": ["%%time\n", *code.splitlines(keepends=True)]}], "nbformat": 4}, indent=indent
    )


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A folder as `grader init` makes it."""
    for folder in (tmp_path / "starter", tmp_path / "mine"):
        folder.mkdir()
        (folder / "softmax.py").write_text(STUB)
        (folder / "gelu.cu").write_text(CU_STUB)
        (folder / "attention.py").write_text("def attention(q):\n    raise NotImplementedError\n")
    return tmp_path / "mine"


@pytest.mark.parametrize("is_missing", [False, True], ids=["stub", "missing"])
@pytest.mark.parametrize(
    ("file", "content", "mend"),
    [
        ("my_softmax.py", KERNEL, "rename it to"),
        ("softmax (1).py", KERNEL, "rename it to"),
        ("Copy of softmax.py", KERNEL, "rename it to"),
        ("lab2.py", "class S: ...\n\nsoftmax = S.apply\n", "rename it to"),
        ("work/softmax.py", KERNEL, "move it out of its folder, as"),
        ("gelu_v2.cu", CU_KERNEL, "rename it to"),
        ("lab.ipynb", notebook(KERNEL), "a notebook cannot be graded, so save its code as"),
        ("small.ipynb", notebook(KERNEL, indent=None), "a notebook cannot be graded, so save its code as"),
    ],
)
def test_a_kernel_elsewhere_is_named_beside_an_untouched_stub_or_where_the_file_is_missing(
    begun: Path, is_missing: bool, file: str, content: str, mend: str
) -> None:
    laid_out(begun, file)
    (begun / file).write_text(content)
    name, entry = ("gelu.cu", "gelu") if file.endswith(".cu") else ("softmax.py", "softmax")
    words = f"{name} is still the starter's stub"
    if is_missing:
        (begun / name).unlink()
        words = f"there is no {name}"
    stub = begun.parent / "starter" / name
    assert kernel_elsewhere(stub, entry, begun) == f"{words}, but {file} looks like your kernel: {mend} {name}"
    assert kernel_elsewhere(begun.parent / "no starter" / name, entry, begun) == ""
    assert kernel_elsewhere(stub, "another", begun) == ""


def test_of_two_kernels_beside_a_stub_both_are_named(begun: Path) -> None:
    for file in ("a.py", "b.py"):
        (begun / file).write_text(KERNEL)
    words = kernel_elsewhere(begun.parent / "starter" / "softmax.py", "softmax", begun)
    assert words.endswith("but a.py and b.py look like your kernel: keep the one that counts, as softmax.py")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("softmax copy.py", STUB),
        ("helper.py", "def my_softmax(x): ...\n\ny = torch.softmax(x)\nsoftmax(y)\n"),
        ("attention.py", KERNEL),
        ("gelu.py", CU_KERNEL),
        ("notes.txt", KERNEL),
        ("tests.ipynb", notebook("from softmax import softmax\n\ny = softmax(x)\n")),
        ("blank.ipynb", "\n" * (MAX_FILE_BYTES - 1)),
        ("other.cu", "void gelu(const float* x);\nvoid f() { gelu(x); }\n"),
    ],
    ids=[
        "a copy of the stub",
        "calls",
        "another assignment's",
        "another language",
        "no program",
        "a notebook's calls",
        "a notebook without a word",
        "a declaration",
    ],
)
def test_other_files_beside_a_stub_are_not_taken_for_the_kernel(begun: Path, file: str, content: str) -> None:
    (begun / file).write_text(content)
    for name, entry in (("softmax.py", "softmax"), ("gelu.cu", "gelu")):
        assert kernel_elsewhere(begun.parent / "starter" / name, entry, begun) == ""


def test_a_look_beside_a_stub_waits_for_no_pipe_and_follows_no_link(begun: Path) -> None:
    os.mkfifo(begun / "pipe.py")
    (begun.parent / "elsewhere").mkdir()
    (begun.parent / "elsewhere" / "kernel.py").write_text(KERNEL)
    (begun / "kernel.py").symlink_to(begun.parent / "elsewhere" / "kernel.py")
    (begun / "link").symlink_to(begun.parent / "elsewhere")
    assert kernel_elsewhere(begun.parent / "starter" / "softmax.py", "softmax", begun) == ""


ALICE_AND_BOB = "holds 2 folders with submissions (alice and bob): grade one of them"


@pytest.mark.parametrize(
    ("paths", "wanted", "words"),
    [
        (["alice/softmax.py", "bob/softmax.py", "grades.csv"], ["softmax.py"], f": {ALICE_AND_BOB}"),
        (["alice/hw/softmax.py", "bob/softmax (1).py"], ["softmax.py"], f": {ALICE_AND_BOB}"),
        (["alice/triton_gelu.py", "bob/softmax.py", "bob/triton_gelu.py"], ["softmax.py"], f": {ALICE_AND_BOB}"),
        (["section/alice/softmax.py", "section/bob/softmax.py"], ["softmax.py"], f"/section: {ALICE_AND_BOB}"),
        ([f"s{number:02}/gelu.cu" for number in range(30)], WANTED, ": holds 30 folders with submissions (s00, s01, s02 and 27 more)"),
        (["part1/gelu.cu", "part2/softmax.py"], WANTED, "there is no gelu.cu, but part1/gelu.cu: move it"),
        (["part1/gelu.cu", "part2/softmax.py"], WANTED, "there is no softmax.py, but part2/softmax.py: move it"),
        (["Untitled.py"], WANTED, "there is no softmax.py, but Untitled.py: rename it to softmax.py"),
        (
            ["Untitled.ipynb"], WANTED,
            ": there is no gelu.cu or softmax.py, but Untitled.ipynb: a notebook cannot be graded, so save its code as gelu.cu",
        ),
        (["a\x1b/softmax.py", "b\n/softmax.py"], WANTED, "holds 2 folders with submissions ("),
        (["hw.zip"], WANTED, ": there is no gelu.cu or softmax.py, but hw.zip: unpack it"),
        (["in/hw.tar.gz", "notes.txt"], WANTED, ": there is no gelu.cu or softmax.py, but in/hw.tar.gz: unpack it"),
        (["hw.ZIP", "old.tgz"], WANTED, ": there is no gelu.cu or softmax.py, but hw.ZIP and old.tgz: unpack the one that counts"),
        (["hw.zip", "lab.py"], WANTED, ": there is no softmax.py, but lab.py: rename it to softmax.py"),
        (
            ["softmax.py.zip", "softmax_final.py"], WANTED,
            "softmax.py.zip and softmax_final.py: keep the one that counts, as softmax.py",
        ),
    ],
)  # fmt: skip
def test_a_folder_without_the_files_is_told_of_with_what_to_do(
    tmp_path: Path, paths: list[str], wanted: Sequence[str], words: str
) -> None:
    with pytest.raises(SubmissionError) as error:
        survey(laid_out(tmp_path, *paths), wanted, KNOWN)
    message = str(error.value)
    assert message.startswith(f"{tmp_path}{words}") if words[0] in ":/" else words in message
    assert all(line.isprintable() for line in message.splitlines()), "names of folders cannot spoil what is printed"


def test_a_survey_does_not_follow_links_or_wait(tmp_path: Path) -> None:
    laid_out(tmp_path / "other", "softmax.py")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "link").symlink_to(tmp_path / "other")
    (tmp_path / "mine" / "self").symlink_to(".")
    os.mkfifo(tmp_path / "mine" / "pipe.md")
    assert survey(tmp_path / "mine", WANTED) == submission.AS_IT_IS
