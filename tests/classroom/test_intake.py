"""The folder of a class is made whole or not at all, and a later export changes what it has to and no more."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grader.classroom import intake
from grader.classroom.folder import NOTHING, ClassError, RunFolder, Student
from grader.classroom.grades import decide_points
from grader.classroom.intake import add_to_class, new_class
from grader.runfolder import held
from tests.support import exports
from tests.support.exports import Handed, zipped
from tests.support.gradings import a_run, attempted

FACTS = a_run(assignments=("softmax",))
ADA, BEN, EVE = "Ada Lovelace", "Ben Nakamura", "Eve Turing"


class Class:
    """A class in a folder, and what was said of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = RunFolder(folder / "run")
        self.facts = FACTS

    def export(self, files: dict[str, bytes | None]) -> Path:
        path = self.folder / "export.zip"
        path.write_bytes(zipped(files))
        return path

    def new(self, files: dict[str, bytes | None], names: Sequence[str] = ()) -> list[str]:
        roster = self.folder / "roster.csv"
        roster.write_text(exports.roster(names))
        return new_class(self.run.path, self.facts, self.export(files), "", roster if names else None)

    def add(self, files: dict[str, bytes | None] | None, roster: str = "") -> list[str]:
        later = self.folder / "later.csv"
        later.write_text(roster)
        source = None if files is None else self.export(files)
        return add_to_class(self.run.path, source, "", later if roster else None)

    def student(self, key: str) -> Student:
        return next(one for one in self.run.students().students if one.key == key)

    def copy(self, key: str) -> dict[str, bytes]:
        folder = self.run.handins / self.student(key).handin
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def made(tmp_path: Path) -> Class:
    return Class(tmp_path)


def of(name: str, content: bytes = b"1", file: str = "softmax.py") -> Handed:
    return Handed(name, {file: content})


# A new class ----------------------------------------------------------------------------------------------------------


def test_a_class_has_its_facts_its_students_and_their_files(made: Class) -> None:
    told = made.new(exports.gradescope([of(ADA), of(BEN, b"2")]), [EVE, ADA, BEN])
    assert made.run.run() == FACTS
    assert [one.key for one in made.run.students().students] == ["eturing", "alovelace", "bnakamura"]
    assert made.student("eturing") == Student(
        key="eturing", name=EVE, ids={"email": "eturing@uni.edu", "sid": exports.sid(EVE), "login": "eturing"}
    )
    assert made.copy("alovelace") == {"softmax.py": b"1"}
    assert made.student("bnakamura").ids["gradescope"] == "9002"
    assert told == [
        "recognised: Gradescope's export: submission_metadata.yml names 2 submissions",
        "students: 3, of whom handed in: 2",
        "hand-ins in the export: 2, different ones: 2",
        "handed in nothing: eturing",
    ]
    assert sorted(path.name for path in made.folder.iterdir()) == ["export.zip", "roster.csv", "run"]
    assert sorted(path.name for path in made.run.path.iterdir()) == ["handins", "run.json", "students.json"]


def test_a_group_has_one_hand_in(made: Class) -> None:
    told = made.new(exports.gradescope([Handed(ADA, together_with=[BEN])]), [ADA, BEN])
    assert made.student("alovelace").handin == made.student("bnakamura").handin != ""
    assert told[1:] == ["students: 2, of whom handed in: 2", "hand-ins in the export: 1, different ones: 1"]


GROUPS = {
    "Team 2": ("E F", "G H"),
    "Project Group 1": (ADA, BEN),
    "Project Group 11": (EVE, "Zoe Zz"),
    "": ("Lone Wolf",),
    "3": ("A B", "C D"),
}


def one_of(name: str, number: int, content: bytes = b"1") -> Handed:
    return Handed(name, {"softmax.py": content}, number)


def of_groups(made: Class, files: dict[str, bytes | None], roster: str) -> list[str]:
    path = made.folder / "groups.csv"
    path.write_text(roster)
    return new_class(made.run.path, FACTS, made.export(files), "", path)


@pytest.mark.parametrize("roster", [exports.canvas_groups(GROUPS), exports.canvas_groups(GROUPS, with_sis=False)])
def test_the_hand_in_of_a_group_of_canvas_is_each_students(made: Class, roster: str) -> None:
    files = exports.canvas_of_groups(
        [
            Handed("Project Group 1", {"softmax.py": b"1"}, number=1004),
            Handed("Project Group 11", {"softmax.py": b"2"}, number=1005, late=True),
            Handed("Lone Wolf", {"softmax.py": b"3"}, number=1007),
            Handed("3", {"softmax.py": b"4"}, number=1009),
            Handed("Team 2", {"softmax.py": b"5", "lib.py": b""}, number=1001),
        ]
    )
    told = of_groups(made, files, roster)
    copies = {one.key: (made.copy(one.key)["softmax.py"], one.late) for one in made.run.students().students}
    assert copies == {
        "alovelace": (b"1", False),
        "bnakamura": (b"1", False),
        "eturing": (b"2", True),
        "zzz": (b"2", True),
        "lwolf": (b"3", False),
        "ab": (b"4", False),
        "cd": (b"4", False),
        "ef": (b"5", False),
        "gh": (b"5", False),
    }
    assert made.student("alovelace").ids["group"] == "Project Group 1"
    assert made.student("alovelace").ids["canvas"] == "1003"
    assert "handed in by groups, for each of their students: Project Group 1, Project Group 11, 3, Team 2" in told
    assert not any("same files" in line or "not in the roster" in line for line in told)
    again = made.add(exports.canvas_of_groups([Handed("Project Group 1", {"softmax.py": b"9"}, number=1003)]))
    assert again[1:3] == [
        "hand-ins in the export: 1; students changed: 2 of 9",
        "handed in again, the new hand-in counts: alovelace, bnakamura",
    ]


def test_a_roster_with_groups_gives_nobody_the_hand_in_of_one_student(made: Class) -> None:
    told = of_groups(
        made,
        exports.canvas([one_of(ADA, 1003), one_of(EVE, 1005), one_of("Lone Wolf", 1007)]),
        exports.canvas_groups(GROUPS),
    )
    assert [one.key for one in made.run.students().students if not one.handin] == [
        "ef",
        "gh",
        "bnakamura",
        "zzz",
        "ab",
        "cd",
    ]
    assert "the same files: alovelace, eturing, lwolf" in told
    made.run.path.rename(made.folder / "other")
    told = of_groups(made, exports.canvas([one_of(EVE, 1005), one_of("Zoe Zz", 1006)]), exports.canvas_groups(GROUPS))
    assert not any("same files" in line for line in told), "a group whose students are graded one by one"


@pytest.mark.parametrize("make", [exports.folders, exports.clones, exports.canvas_of_groups])
def test_a_group_by_its_name_alone(made: Class, make: Callable[[Sequence[Handed]], dict[str, bytes | None]]) -> None:
    roster = f"name,login,group\n{ADA},ada,J. Team\n{BEN},ben,J. Team\n{EVE},eturing,jteam-2\n"
    told = of_groups(made, make([one_of("J Team", 7), one_of(EVE, 8, b"2")]), roster)
    assert made.copy("ada") == made.copy("ben") == {"softmax.py": b"1"}
    assert made.copy("eturing") == {"softmax.py": b"2"}
    assert "handed in by groups, for each of their students: J. Team" in told


def test_a_group_that_the_roster_does_not_tell_is_asked_for(made: Class) -> None:
    roster = 'Student,ID,SIS Login ID\n"Lovelace, Ada",1001,ada\n"Nakamura, Ben",1002,ben\n'
    told = of_groups(made, exports.canvas_of_groups([Handed("Group 1", number=1002)]), roster)
    assert "handed in nothing: ada" in told
    assert (
        "Canvas names hand-ins after nobody; a roster with the column `group` gives a group's other students the hand-in: "
        "group1 (ben)"
    ) in told


def test_equal_files_are_one_copy_and_listed(made: Class) -> None:
    told = made.new(exports.canvas([of(ADA), of(BEN), of(EVE, b"2")]), [ADA, BEN, EVE])
    assert made.student("alovelace").handin == made.student("bnakamura").handin != made.student("eturing").handin
    assert "the same files: alovelace, bnakamura" in told
    assert made.run.students().notes == ("the same files: alovelace, bnakamura",)
    assert len(list(made.run.handins.iterdir())) == 2


def test_people_who_are_not_on_the_roster_are_kept_and_said(made: Class) -> None:
    told = made.new(exports.moodle([of(ADA), of(EVE, b"2")]), [ADA])
    assert [one.key for one in made.run.students().students] == ["alovelace", "Eve-Turing"]
    assert made.copy("Eve-Turing") == {"softmax.py": b"2"}
    assert "handed in and not in the roster: Eve-Turing" in told
    made.run.path.rename(made.folder / "other")
    assert not any("roster" in line for line in made.new(exports.moodle([of(ADA)])))


def test_a_namesake_with_other_ids_is_somebody_else(made: Class) -> None:
    made.new(renumbered(exports.gradescope([of(ADA)]), exports.sid(ADA), "99", "alovelace@", "ada@"), [ADA])
    assert (made.student("alovelace").handin, made.copy("ada@uni.edu")) == ("", {"softmax.py": b"1"})
    assert made.student("ada@uni.edu").notes == (
        "has the name of alovelace, and other ids; a roster with ada@uni.edu in the column `email` says whose it is",
    )


def test_an_id_that_differs_from_the_rosters_is_said(made: Class) -> None:
    made.new(renumbered(exports.gradescope([of(ADA)]), exports.sid(ADA), "99"), [ADA])
    assert made.student("alovelace").notes == ("handed in with the sid 99",)
    assert made.student("alovelace").ids["sid"] == exports.sid(ADA)


def renumbered(files: dict[str, bytes | None], *words: str) -> dict[str, bytes | None]:
    """Gradescope's export with other words in its metadata."""
    (name,) = (name for name in files if name.endswith(".yml"))
    text = (files[name] or b"").decode()
    for old, new in zip(words[::2], words[1::2], strict=True):
        text = text.replace(old, new)
    return {**files, name: text.encode()}


def test_what_platforms_say_of_a_student_is_kept(made: Class) -> None:
    told = made.new(exports.canvas([Handed(ADA, {"softmax-1.py": b"1", "x.png": b""}, number=4711, late=True)]), [ADA])
    ada = made.student("alovelace")
    assert (ada.late, ada.ids["canvas"], ada.name) == (True, "4711", ADA)
    assert ada.notes[0] == "softmax-1.py is taken for softmax.py: Canvas numbers a file that is handed in again"
    assert ada.notes[1].startswith("x.png: ignored, not a kind of file")
    assert ["late: alovelace", *(f"alovelace: {note}" for note in ada.notes)] == told[-3:]


def test_a_student_of_whom_nothing_can_be_graded_is_not_one_who_handed_in_nothing(made: Class) -> None:
    told = made.new(exports.moodle([of(ADA, b"%PDF", "essay.pdf")]), [ADA, BEN])
    assert made.student("alovelace").notes[-1] == NOTHING
    assert told[3:5] == ["handed in nothing: bnakamura", f"{NOTHING}: alovelace"]
    assert told[5].startswith("alovelace: essay.pdf: ignored")


@pytest.mark.parametrize("backwards", [False, True])
def test_of_two_hand_ins_of_a_student_the_later_counts(made: Class, backwards: bool) -> None:
    handed = [Handed(ADA, {"softmax.py": b"old"}, 11), Handed(ADA, {"softmax.py": b"new"}, 12)]
    made.new(exports.gradescope(handed[::-1] if backwards else handed), [ADA])
    assert made.copy("alovelace") == {"softmax.py": b"new"}
    assert made.student("alovelace").notes == (
        "handed in twice: submission_12 counts, submission_11 is the earlier one",
    )
    assert made.student("alovelace").ids["gradescope"] == "12"
    assert not any("same files" in note for note in made.run.students().notes)


def test_a_later_hand_in_of_which_nothing_can_be_graded_does_not_count(made: Class) -> None:
    made.new(exports.gradescope([Handed(ADA, {"softmax.py": b"1"}, 11), Handed(ADA, {"x.png": b""}, 12)]), [ADA])
    assert made.copy("alovelace") == {"softmax.py": b"1"}
    assert made.student("alovelace").notes[-1] == f"submission_12: {NOTHING}; the hand-in before counts"


NAMESAKES = f"name,email,sid\n{ADA},one@x.edu,1\n{ADA},two@x.edu,2\n{BEN},ben@x.edu,3\n"
MAY_BE = "Ada Lovelace may be one@x.edu or two@x.edu, "


@pytest.mark.parametrize(
    ("handed", "roster", "note"),
    [
        ([(ADA, 51), (ADA, 52)], NAMESAKES, MAY_BE + "and several hand-ins have this name: nobody was chosen"),
        ([(ADA, 51), (ADA, 52), (BEN, 53)], NAMESAKES, MAY_BE + "and several hand-ins have this name: nobody was chosen"),
        ([(ADA, 51), (BEN, 53)], NAMESAKES, MAY_BE + "by the name 'Ada Lovelace': nobody was chosen"),
        ([(ADA, 51), (ADA, 52)], f"name,email\n{ADA},one@x.edu\n", "Ada Lovelace may be one@x.edu, and several hand-ins have this name"),
        ([("Participant", 51), ("Participant", 52)], NAMESAKES, ""),
    ],
)  # fmt: skip
def test_of_two_with_one_name_nobody_is_chosen_and_a_line_of_the_roster_says_who(
    made: Class, handed: list[tuple[str, int]], roster: str, note: str
) -> None:
    files = exports.moodle([Handed(name, {"softmax.py": b"%d" % number}, number) for name, number in handed])
    of_groups(made, files, roster)
    students = made.run.students().students
    strangers = [one for one in students if "email" not in one.ids]
    doubtful = [number for name, number in handed if name != BEN]
    assert [one.ids["moodle"] for one in strangers] == [str(one) for one in doubtful]
    for one in strangers:
        assert not note or any(words.startswith(note) for words in one.notes)
        assert not note or one.notes[-1].endswith(
            f"a roster with {one.ids['moodle']} in the column `moodle id` says whose it is"
        )
    lines = roster.splitlines()
    later = "\n".join(
        [lines[0] + ",moodle id", *(f"{line},{number}" for line, number in zip(lines[1:], (51, 52, 53), strict=False))]
    )
    told = made.add(None, later + "\n")
    assert (made.copy("one@x.edu"), made.student("one@x.edu").notes) == ({"softmax.py": b"51"}, ())
    assert len(made.run.students().students) == max(len(lines) - 1, len(doubtful))
    assert any(line.endswith("is one@x.edu by the roster") for line in told)


def test_folders_that_differ_in_case_alone_are_two_students_unless_the_roster_has_one_of_them(made: Class) -> None:
    files = exports.folders([Handed("ada", {"softmax.py": b"1"})]) | {"X/softmax.py": b"2", "x/softmax.py": b"3"}
    told = of_groups(made, files, "name,login\nXia Wu,x\n")
    assert made.copy("x") == {"softmax.py": b"3"}
    assert made.copy("X-2") == {"softmax.py": b"2"}
    words = (
        "another folder has this name but for capital letters; a roster with X in the column `folder` says whose it is"
    )
    assert f"X-2: X: {words}" in told
    made.run.path.rename(made.folder / "other")
    of_groups(made, {"X/softmax.py": b"2", "y/softmax.py": b"3"}, "name,login\nXia Wu,x\n")
    assert made.copy("x") == {"softmax.py": b"2"}, "one folder alone is the student's, whatever its letters"


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ({"softmax.py": b"1", "gelu.cu": b"1"}, {"gelu.cu": b"2"}, "softmax.py"),
        ({"lab/softmax.py": b"1", "gelu.cu": b"1"}, {"notes.md": b"2"}, "gelu.cu and no softmax.py"),
        ({"softmax.py": b"1", "lib.py": b"1"}, {"softmax.py": b"2"}, ""),
        ({"softmax.py": b"1"}, {"softmax.py": b"2", "gelu.cu": b"1"}, ""),
    ],
)
@pytest.mark.parametrize("at_once", [False, True], ids=["two exports", "one export"])
def test_a_later_hand_in_with_fewer_files_is_told(
    made: Class, before: dict[str, bytes], after: dict[str, bytes], lost: str, at_once: bool
) -> None:
    made.facts = FACTS.model_copy(update={"assignments": ("cuda_gelu", "softmax")})
    first, later = Handed(ADA, before, 11), Handed(ADA, after, 12)
    if at_once:
        told = made.new(exports.gradescope([first, later]), [ADA])
    else:
        made.new(exports.gradescope([first]), [ADA])
        told = made.add(exports.gradescope([later]))
    notes = [one for one in made.student("alovelace").notes if one.startswith("has no ")]
    assert [one.partition(", which")[0] for one in notes] == [f"has no {lost}"] * bool(lost)
    assert any(
        line.startswith("handed in again without files that the hand-in before had: alovelace (") for line in told
    ) == bool(lost)
    assert not lost or f"alovelace: {notes[0]}" in told


def test_hundreds_of_notes_are_cut_and_those_without_a_hand_in_come_first(made: Class) -> None:
    handed = [Handed(f"Ada L{number}", {"softmax.py": b"%d" % number, "x.png": b""}) for number in range(60)]
    told = made.new(exports.moodle([*handed, of("Zoe Zz", b"", "y.png")]))
    notes = [line for line in told if ": ignored" in line]
    assert len(notes) == intake.MAX_TOLD
    assert notes[0].startswith("Zoe-Zz: y.png")
    assert told[-1] == "and 41 more notes, in students.json"


PARTS = ["..", "", "ada", "Ada", "softmax.py", "x.zip", "C:", "a\\b", "-", "~", "é.py", "\x07.py", ".git", "build"]
OF_PLATFORMS = ["Ada L_12_assignsubmission_file_", "la_LATE_1_2_softmax-1.py", "ada.zip"]
NAMES = st.lists(st.sampled_from(PARTS + OF_PLATFORMS), min_size=1, max_size=5).map("/".join).filter(bool)
ARCHIVE = zipped({"softmax.py": b"1", "../z.py": b""})
CONTENTS = [b"", b"1", b"\0", ARCHIVE, ARCHIVE[:-9]]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@given(st.dictionaries(NAMES, st.sampled_from(CONTENTS), max_size=6), st.booleans())
@example({"ada/../../../softmax.py": b"1"}, False)
@example({"ada/../../../softmax.py": b"1"}, True)
def test_any_archive_is_a_class_or_a_sentence_and_writes_nothing_elsewhere(
    files: dict[str, bytes | None], in_archive: bool
) -> None:
    with tempfile.TemporaryDirectory() as around:
        made = Class(Path(around, "a", "b"))
        made.folder.mkdir(parents=True)
        with contextlib.suppress(ClassError):
            made.new({"ada/in.zip": zipped(files)} if in_archive else files)
            copies = {path.name for path in made.run.handins.iterdir()}
            assert {one.handin for one in made.run.students().students} - {""} <= copies
        written = {path.relative_to(made.folder) for path in Path(around).rglob("*") if path.is_file()}
        own = {Path(name) for name in ("export.zip", "roster.csv", "run/run.json", "run/students.json")}
        for path in written - own:
            assert path.is_relative_to("run/handins")
            assert not any(part.startswith((".", "-")) for part in path.parts)
            assert (made.folder / path).read_bytes() in CONTENTS


# Whole or not at all --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), ClassError("x")])
@pytest.mark.parametrize("at", ["Students", "keep"])
def test_a_class_that_cannot_be_made_leaves_nothing(
    made: Class, error: BaseException, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    real = intake.keep

    def fail(*_: object, **__: object) -> None:
        raise error

    def second(*words: object, **options: object) -> object:
        calls.append(words)
        if len(calls) > 1:
            raise error
        return real(*words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(intake, at, second if at == "keep" else fail)
    with pytest.raises(type(error)):
        made.new(exports.folders([of(ADA), of(BEN)]))
    assert len(calls) == 2 * (at == "keep")
    assert sorted(path.name for path in made.folder.iterdir()) == ["export.zip", "roster.csv"]


def test_a_folder_in_use_is_refused_and_an_empty_one_is_taken(made: Class) -> None:
    made.run.path.mkdir()
    made.new(exports.folders([of(ADA)]))
    before = {path: path.stat().st_mtime_ns for path in made.folder.rglob("run/**/*")}
    with pytest.raises(
        ClassError, match=r"run: exists and is not empty; name a new folder, or add .*`grader class add"
    ):
        made.new(exports.folders([of(BEN)]))
    assert {path: path.stat().st_mtime_ns for path in made.folder.rglob("run/**/*")} == before
    shutil.rmtree(made.run.path)
    made.run.path.write_text("")
    with pytest.raises(ClassError, match="run: is a file"):
        made.new(exports.folders([of(BEN)]))


def test_what_a_killed_command_left_is_removed_by_the_next(made: Class) -> None:
    """It has students' files."""
    left, busy, others = (made.folder / f".grader-new-{name}" for name in ("run-1", "run-2", "run2-1"))
    for folder in (left, busy, others):
        exports.unpacked({"handins/0/softmax.py": b"1"}, folder)
    with held(busy):
        made.new(exports.folders([of(ADA)]))
    assert sorted(path.name for path in made.folder.glob(".*")) == [busy.name, others.name]


def test_a_class_is_for_its_owner(made: Class) -> None:
    made.new(exports.folders([of(ADA)]))
    assert made.run.path.stat().st_mode & 0o077 == 0


# A later export -------------------------------------------------------------------------------------------------------


def test_who_handed_in_again_under_an_override_is_told(made: Class) -> None:
    """The new hand-in counts, and changes nothing: a new TA has to hear of it."""
    made.new(exports.canvas([of(ADA), of(BEN)]), [ADA, BEN, EVE])
    for key in ("alovelace", "bnakamura"):
        decide_points(made.run, made.student(key), 3, "by hand")
    decide_points(made.run, made.student("bnakamura"), None, "no")
    words = "points by decision stand, whatever the new hand-in earns; `grader class decide RUN WHO --withdraw` takes them back: "
    assert f"{words}alovelace" in made.add(exports.canvas([of(ADA, b"2"), of(BEN, b"2"), of(EVE)]))


def test_a_later_export_changes_those_who_handed_in_again(made: Class) -> None:
    made.new(exports.canvas([of(ADA), of(BEN, b"2")]), [ADA, BEN, EVE])
    before = {one.key: one for one in made.run.students().students}
    attempt = attempted(made.run, before["alovelace"].handin)
    told = made.add(
        exports.canvas(
            [
                Handed(ADA, {"softmax-1.py": b"new"}, late=True),
                of(BEN, b"2"),
                of(EVE, b"3"),
                Handed("Zoe Zz", {"softmax.py": b"4"}, late=True),
            ]
        )
    )
    assert told == [
        "recognised: Canvas' submissions: files are named as lovelaceada_LATE_1001_50007_softmax-1.py",
        "hand-ins in the export: 4; students changed: 3 of 4",
        "handed in again, the new hand-in counts: alovelace",
        "handed in for the first time: eturing",
        "late: alovelace, zzzoe",
        "handed in and not in the class before: zzzoe",
        "alovelace: softmax-1.py is taken for softmax.py: Canvas numbers a file that is handed in again",
        f"alovelace: handed in again; the hand-in before was {before['alovelace'].handin}",
    ]
    assert made.copy("alovelace") == {"softmax.py": b"new"}
    assert made.student("bnakamura") == before["bnakamura"]
    assert (made.run.handins / before["alovelace"].handin / "softmax.py").read_bytes() == b"1"
    assert list(made.run.attempts(before["alovelace"].handin)) == [attempt]
    assert made.run.run() == FACTS
    again = made.add(exports.canvas([Handed(ADA, {"softmax-1.py": b"new"})]))
    assert again[1:] == ["hand-ins in the export: 1; students changed: 0 of 4"]


def test_a_later_roster_adds_students_and_tells_who_is_not_on_it(made: Class) -> None:
    made.new(exports.canvas([of(ADA), of(EVE, b"2")]))
    before = {one.key: one for one in made.run.students().students}
    roster = "Name,Canvas ID,Email,Alias\nAda Lovelace,1001,ada@uni.edu,Countess\nBen Nakamura,77,ben@uni.edu,\n"
    told = made.add(None, roster)
    assert told == [
        "students changed: 1 of 3",
        "new by the roster: ben@uni.edu",
        "in the class, and not on the roster: turingeve",
    ]
    ada = before["lovelaceada"]
    known = ada.model_copy(update={"name": ADA, "ids": {"canvas": "1001", "email": "ada@uni.edu"}, "alias": "Countess"})
    ben = Student(key="ben@uni.edu", name=BEN, ids={"canvas": "77", "email": "ben@uni.edu"})
    assert made.run.students().students == (known, before["turingeve"], ben)
    assert made.add(None, roster)[0] == "students changed: 0 of 3"


def test_a_later_roster_is_taken_before_the_export_that_comes_with_it(made: Class) -> None:
    made.new(exports.canvas([of(ADA)]), [ADA])
    told = made.add(exports.canvas([of(ADA), of(BEN, b"2")]), exports.roster([ADA, BEN]))
    assert told[1:] == [
        "hand-ins in the export: 2; students changed: 1 of 2",
        "new by the roster: bnakamura",
    ]
    assert made.copy("bnakamura") == {"softmax.py": b"2"}


def test_two_lines_of_a_later_roster_are_two_people_and_nobody_is_guessed(made: Class) -> None:
    made.new(exports.folders([of(BEN)]), [BEN])
    made.add(None, "name,sid,email\nAda Lovelace,1,\nAda Lovelace,,ada2@uni.edu\n")
    assert [one.ids.get("sid", "") for one in made.run.students().students] == [exports.sid(BEN), "1", ""]
    told = made.add(None, "name\nAda Lovelace\n")
    assert told[1] == (
        "on the roster: Ada Lovelace may be Ada-Lovelace or ada2@uni.edu, by the name 'Ada Lovelace': nobody was chosen"
    )
    assert len(made.run.students().students) == 3


def test_an_export_that_cannot_be_read_leaves_the_class_as_it_was(made: Class) -> None:
    made.new(exports.folders([of(ADA)]))
    before = (made.run.path / "students.json").read_bytes()
    (made.folder / "bad.zip").write_bytes(b"PK")
    with pytest.raises(ClassError, match=r"bad\.zip: is no zip"):
        add_to_class(made.run.path, made.folder / "bad.zip")
    assert (made.run.path / "students.json").read_bytes() == before


def test_a_class_may_lie_in_what_it_is_made_of(made: Class) -> None:
    source = exports.unpacked(exports.folders([of(ADA)]), made.folder / "handed")
    new_class(source / "run", FACTS, source)
    assert [one.key for one in RunFolder(source / "run").students().students] == ["alovelace"]
    assert not [path for path in source.iterdir() if path.name.startswith(".")]
