"""Each learning platform's archive is recognised, and each file found its owner and its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from grader.classroom.archive import Source, open_inner, open_source
from grader.classroom.folder import ClassError
from grader.classroom.platforms import METADATA, PLATFORMS, Export, HandIn, recognise
from grader.classroom.roster import Person
from tests.support import exports
from tests.support.exports import Handed, unpacked, zipped

NAMES = {"softmax.py", "gelu.cu"}
CLASS = (
    Handed("Ada Lovelace", {"softmax.py": b"1", "lib/tiles.py": b"2"}),
    Handed("Jürgen O'Brien", {"gelu.cu": b"3"}, late=True),
    Handed("Anne-Marie van der Berg", {"softmax.py": b"4"}),
)
FLAT = tuple(
    Handed(one.name, {name: data for name, data in one.files.items() if "/" not in name}, late=one.late)
    for one in CLASS
)
Make = Callable[[Sequence[Handed]], dict[str, bytes | None]]


def source_of(files: dict[str, bytes | None], name: str = "export") -> Source:
    return open_inner(zipped(files), name)


def recognised(files: dict[str, bytes | None], name: str = "export", platform: str = "") -> Export:
    return recognise(source_of(files, name), NAMES, platform)


def files_of(handin: HandIn) -> dict[str, bytes]:
    return {entry.name: entry.read(1000) for entry in handin.entries}


def in_order(found: Export) -> list[tuple[str, tuple[Person, ...], dict[str, bytes]]]:
    return [(one.where, one.people, files_of(one)) for one in sorted(found.handins, key=lambda one: one.where)]


@pytest.mark.parametrize(
    ("platform", "make", "sentence"),
    [
        ("gradescope", exports.gradescope, "Gradescope's export: submission_metadata.yml names 3 submissions"),
        (
            "moodle",
            exports.moodle,
            "Moodle's submissions: folders are named as Ada Lovelace_657001_assignsubmission_file_",
        ),
        ("canvas", exports.canvas, "Canvas' submissions: files are named as lovelaceada_1001_50007_softmax.py"),
        ("github", exports.clones, "cloned repositories: folders are named as lab-1-aberg"),
        ("folders", exports.folders, "a folder for each student, named as aberg"),
    ],
)
@pytest.mark.parametrize("insisted", [True, False])
def test_each_platform_is_recognised_as_a_zip_and_as_a_folder(
    platform: str, make: Make, sentence: str, insisted: bool, tmp_path: Path
) -> None:
    handed = FLAT if platform == "canvas" else CLASS
    files = make(handed)
    found = recognised(files, platform=platform * insisted)
    assert (found.sentence, found.notes) == (sentence, ())
    assert sorted(map(sorted, (files_of(one) for one in found.handins))) == sorted(sorted(one.files) for one in handed)
    with open_source(unpacked(files, tmp_path / "export")) as source:
        again = recognise(source, NAMES, platform * insisted)
        assert in_order(again) == in_order(found)
    for other in PLATFORMS.keys() - {platform, "folders"} if insisted else ():
        with pytest.raises(ClassError, match=r"export: it has .*; expected "):
            recognised(files, platform=other)


def test_what_has_no_form_is_said() -> None:
    with pytest.raises(
        ClassError, match=r"export: it has a\.txt, which is none of these forms: gradescope: Gradescope's export, with"
    ):
        recognised({"a.txt": b""})
    with pytest.raises(ClassError, match="export: it is empty, which is none"):
        recognised({})
    with pytest.raises(ClassError, match=r"export: softmax\.py lies in it itself, so it is one submission"):
        recognised({"softmax.py": b"", "lib/x.py": b""})


# Gradescope -----------------------------------------------------------------------------------------------------------


def test_gradescope_names_all_members_of_a_group() -> None:
    found = recognised(exports.gradescope([Handed("Ada Lovelace", together_with=["Alan Turing"])]))
    (handin,) = found.handins
    assert [(one.name, one.ids) for one in handin.people] == [
        (name, {"email": f"{exports.login(name)}@uni.edu", "sid": exports.sid(name)})
        for name in ("Ada Lovelace", "Alan Turing")
    ]
    assert handin.people[0].ids["sid"].startswith("0"), "a number would lose its zero"
    assert (handin.order, handin.ids) == (9001, {"gradescope": "9001"})


NOBODYS = "s: submission_metadata.yml names no submitter, so nobody knows whose it is"


@pytest.mark.parametrize(
    ("text", "people", "notes"),
    [
        ("s:\n  :submitters: []\n", [], (NOBODYS,)),
        ("s: 1\n", [], (NOBODYS,)),
        ("s:\n  :submitters:\n  - :name: No\n    :sid: 0123\n    :email:\n", [("No", {"sid": "0123"})], ()),
        ("s:\n  :submitters:\n  - :name: ~\n    :sid:\n", [], (NOBODYS,)),
        ("s:\n  :when: !ruby/object:Time 2026-01-01\n  :submitters:\n  - :name: \"J\\u00fcrgen\"\n", [("Jürgen", {})], ()),
        ("s:\n  submitters:\n  - name: Ada\n    email: a@b.c\n", [("Ada", {"email": "a@b.c"})], ()),
    ],
)  # fmt: skip
def test_gradescopes_metadata_is_text_and_nothing_else(
    text: str, people: list[tuple[str, dict[str, str]]], notes: tuple[str, ...]
) -> None:
    found = recognised({METADATA: text.encode(), "s/x.py": b""})
    named = [one for handin in found.handins for one in handin.people]
    assert [(one.name, one.ids) for one in named] == people
    assert found.notes == notes


@pytest.mark.parametrize(
    "text", ["a: [", "- 1", "", "!!python/object/apply:os.system ['exit 1']", "\x00", "&a [*a]", "a: *b"]
)
def test_metadata_that_cannot_be_read_is_said(text: str) -> None:
    with pytest.raises(
        ClassError, match=r"submission_metadata\.yml(: is not what Gradescope writes| names no submissions)"
    ):
        recognised({METADATA: text.encode(), "s/x.py": b""})


def test_a_folder_without_an_entry_and_an_entry_without_a_folder_are_said() -> None:
    files = exports.gradescope([Handed("Ada Lovelace"), Handed("Alan Turing", {})], root="")
    found = recognised({**files, "submission_7/x.py": b"", "readme.txt": b""})
    assert found.notes == (
        "submission_7: submission_metadata.yml does not name it, so nobody knows whose it is",
        "readme.txt: lies beside the submissions, and is not used",
    )
    assert [one.notes for one in found.handins] == [(), ("the export has no folder of it",)]


# Canvas ---------------------------------------------------------------------------------------------------------------


def canvas_of(*names: str, backwards: bool = False, **contents: bytes) -> HandIn:
    """The hand-in of files that one person uploaded in this order; the zip may have them in another."""
    pairs = [
        (f"lovelaceada_7_{number}_{name}", contents.get(name, b"%d" % number)) for number, name in enumerate(names, 50)
    ]
    files: dict[str, bytes | None] = dict(pairs[::-1] if backwards else pairs)
    (handin,) = recognised(files, platform="canvas").handins
    return handin


@pytest.mark.parametrize(
    ("name", "person", "late", "file"),
    [
        ("lovelaceada_1001_50_softmax.py", Person("lovelaceada", {"canvas": "1001"}), False, "softmax.py"),
        ("lovelaceada_LATE_1001_50_softmax.py", Person("lovelaceada", {"canvas": "1001"}), True, "softmax.py"),
        ("müller_j_1001_50_my_soft_max.py", Person("müller_j", {"canvas": "1001"}), False, "my_soft_max.py"),
        ("शर्माकमला_LATE_1001_50_softmax.py", Person("शर्माकमला", {"canvas": "1001"}), True, "softmax.py"),
        ("yılmazi\u0307pek_1001_50_softmax.py", Person("yılmazi\u0307pek", {"canvas": "1001"}), False, "softmax.py"),
        ("ada2_1001_50_7_8_x.py", Person("ada2", {"canvas": "1001"}), False, "7_8_x.py"),
        ("1_1001_50_softmax.py", Person("1", {"canvas": "1001"}), False, "softmax.py"),
        ("_1001_50_softmax.py", Person("", {"canvas": "1001"}), False, "softmax.py"),
        ("anon_aB3xZ_50_softmax.py", Person("", {"canvas": "anon_aB3xZ"}), False, "softmax.py"),
        ("LATE_anon_aB3xZ_50_softmax.py", Person("", {"canvas": "anon_aB3xZ"}), True, "softmax.py"),
        ("lovelaceada_1001_text.html", Person("lovelaceada", {"canvas": "1001"}), False, "text.html"),
        ("lovelaceada_LATE_1001_link.html", Person("lovelaceada", {"canvas": "1001"}), True, "link.html"),
    ],
)
def test_a_name_of_canvas_is_taken_apart(name: str, person: Person, late: bool, file: str) -> None:
    (handin,) = recognised({name: b"1"}).handins
    assert (handin.people, handin.late, files_of(handin)) == ((person,), late, {file: b"1"})


@pytest.mark.parametrize(
    ("uploaded", "kept", "notes"),
    [
        (["softmax.py"], {"softmax.py": b"50"}, ()),
        (["softmax-1.py"], {"softmax.py": b"50"}, ("softmax-1.py is taken for softmax.py: Canvas numbers a file that is handed in again",)),
        (["softmax.py", "softmax-1.py"], {"softmax.py": b"51"}, ("softmax.py was handed in twice: softmax-1.py is the later one",)),
        (["softmax-2.py", "softmax.py"], {"softmax.py": b"51"}, ("softmax.py was handed in twice: the later one counts",)),
        (["softmax-9.py", "softmax-10.py"], {"softmax.py": b"51"}, ("softmax.py was handed in twice: softmax-10.py is the later one",)),
        (["a-1.py", "a-2.py", "a.py"], {"a.py": b"52"}, ("a.py was handed in 3 times: the later one counts",)),
        (
            ["softmax-6b3bd1f2-0a9c-4e0e-9d63-2f1d4f5b6a70.py"],
            {"softmax.py": b"50"},
            ("softmax-6b3bd1f2-0a9c-4e0e-9d63-2f1d4f5b6a70.py is taken for softmax.py: Canvas numbers a file that is handed in again",),
        ),
        (["gelu-1.cu", "tiles-1.cuh"], {"gelu.cu": b"50", "tiles.cuh": b"51", "tiles-1.cuh": b"51"}, (
            "gelu-1.cu is taken for gelu.cu: Canvas numbers a file that is handed in again",
            "tiles-1.cuh is taken for tiles.cuh: Canvas numbers a file that is handed in again",
        )),
        (["softmax-1.py", "softmax-1-2.py"], {"softmax.py": b"51"}, ("softmax.py was handed in twice: softmax-1-2.py is the later one",)),
        (["gelu-1-1.cu", "tiles-1-1.cuh"], {"gelu.cu": b"50", "tiles.cuh": b"51", "tiles-1-1.cuh": b"51"}, (
            "gelu-1-1.cu is taken for gelu.cu: Canvas numbers a file that is handed in again",
            "tiles-1-1.cuh is taken for tiles.cuh: Canvas numbers a file that is handed in again",
        )),
        (["lab-1.zip"], {"lab.zip": b"50"}, ("lab-1.zip is taken for lab.zip: Canvas numbers a file that is handed in again",)),
        (["part-two.py", "x-100.py", "-1.py"], {"part-two.py": b"50", "x-100.py": b"51", "-1.py": b"52"}, ()),
    ],
)  # fmt: skip
def test_of_canvas_versions_the_latest_counts(
    uploaded: list[str], kept: dict[str, bytes], notes: tuple[str, ...]
) -> None:
    handin = canvas_of(*uploaded)
    assert (files_of(handin), handin.notes) == (kept, notes)
    backwards = canvas_of(*uploaded, backwards=True)
    assert (files_of(backwards), set(backwards.notes)) == (kept, set(notes))


def test_a_file_with_another_name_in_canvas_zip_is_said() -> None:
    found = recognised({**exports.canvas(FLAT), "readme.txt": b""})
    assert found.notes == ("readme.txt: is not named as Canvas names files, and is not used",)
    assert len(found.handins) == 3


def test_canvas_test_student_is_nobody() -> None:
    found = recognised({**exports.canvas(FLAT), "studenttest_LATE_4799_77_softmax.py": b"1"})
    assert found.notes == ("studenttest (4799): Canvas' Test Student is nobody, and is left out",)
    assert len(found.handins) == 3


# Moodle ---------------------------------------------------------------------------------------------------------------


def test_moodles_hand_ins_have_one_owner_whatever_their_kind() -> None:
    files: dict[str, bytes | None] = {
        "Ada Lovelace_12_assignsubmission_file_/softmax.py": b"1",
        "Ada Lovelace_12_assignsubmission_onlinetext_/onlinetext.html": b"2",
        "Alan Turing_13_assignsubmission_file/gelu.cu": b"3",
        "Emma Noether_14_assignsubmission_file_/": None,
        "Jean_Luc_15_assignsubmission_file_my_soft max.py": b"4",
        "readme.txt": b"",
    }
    found = recognised(files)
    assert [(one.people[0].name, one.people[0].ids["moodle"], files_of(one)) for one in found.handins] == [
        ("Ada Lovelace", "12", {"softmax.py": b"1", "onlinetext.html": b"2"}),
        ("Alan Turing", "13", {"gelu.cu": b"3"}),
        ("Emma Noether", "14", {}),
        ("Jean_Luc", "15", {"my_soft max.py": b"4"}),
    ]
    assert found.notes == ("readme.txt: is not named as Moodle names files, and is not used",)


# Clones and folders ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "folders", "users"),
    [
        ("lab-1-submissions", ["lab-1-ada", "lab-1-alan-t"], ["ada", "alan-t"]),
        ("lab-1-submissions", ["lab-1-ada", "other"], ["ada", "other"]),
        ("clones", ["lab-1-ada", "lab-1-alan-t"], ["lab-1-ada", "lab-1-alan-t"]),
        ("clones", ["ada", "alan-t"], ["ada", "alan-t"]),
    ],
)
def test_users_of_clones(name: str, folders: list[str], users: list[str]) -> None:
    files = {f"{folder}/{path}": b"" for folder in folders for path in ("x.py", ".git/HEAD")}
    found = recognised(dict(files), name)
    assert found.sentence == f"cloned repositories: folders are named as {folders[0]}"
    assert [one.people[0].ids["github"] for one in found.handins] == users
    assert [list(files_of(one)) for one in found.handins] == [["x.py"]] * len(folders)


def test_folders_and_zips_of_students() -> None:
    files: dict[str, bytes | None] = {
        "ada/lab/softmax.py": b"1",
        "Turing, Alan/gelu.cu": b"2",
        "emma.zip": zipped({"softmax.py": b"3"}),
        "kurt.tar.gz": b"4",
        "empty/": None,
        "marks.csv": b"",
    }
    found = recognised(files)
    assert [(one.where, one.people[0].name, one.people[0].ids) for one in found.handins] == [
        ("Turing, Alan", "Turing, Alan", {"folder": "Turing, Alan"}),
        ("ada", "", {"folder": "ada"}),
        ("empty", "", {"folder": "empty"}),
        ("emma.zip", "", {"folder": "emma"}),
        ("kurt.tar.gz", "", {"folder": "kurt"}),
    ]
    assert files_of(found.handins[1]) == {"lab/softmax.py": b"1"}
    assert found.notes == ("marks.csv: lies beside the folders, and is not used",)


@pytest.mark.parametrize(
    ("files", "wheres"),
    [
        (["lab/ada/x.py", "lab/alan/x.py"], ["ada", "alan"]),
        (["a/b/ada/x.py", "a/b/alan/x.py"], ["ada", "alan"]),
        (["ada/x.py"], ["ada"]),
        (["ada/lib/x.py", "ada/softmax.py"], ["ada"]),
        (["ada/src/softmax.py"], ["ada"]),
    ],
)
def test_a_folder_around_the_students_folders_is_entered(files: list[str], wheres: list[str]) -> None:
    assert [one.where for one in recognised(dict.fromkeys(files, b"")).handins] == wheres
