"""What a worker can reach in each jail, asked from inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

import grader
from grader.course import INSTALLED, CourseOpen, close_installed_course, hidden_courses
from grader.pool import jail as jails
from grader.pool.fault import Fault
from grader.pool.jail import NO_JAIL, USERS, Jail, strongest_jail, worker_uid
from grader.pool.pool import WorkerPool
from grader.pool.watch import CallLimits
from tests.conftest import IMPORTS, ROOT, Course, StartRun, broken_jails, open_to_workers
from tests.support.jails import BWRAP, JAILS, ROOT_HERE, SETPRIV, jail_or_skip

pytestmark = pytest.mark.grading

# Answers a question about the world with the message of an exception: that is what a worker may tell.
PROBE = """
import ctypes, json, os, pathlib, signal, socket, subprocess

def look(what, *arguments):
    try:
        return {"ok": globals()[what](*arguments)}
    except OSError as error:
        return {"error": type(error).__name__}

def read(path): return pathlib.Path(path).read_bytes()[:40].decode(errors="replace")
def write(path): return pathlib.Path(path).write_text("here")
def size(path): return os.stat(path).st_size
def listdir(path): return sorted(os.listdir(path))
def user(): return [os.getuid(), os.getgid(), os.getgroups()]
def processes(): return sorted(int(one) for one in os.listdir("/proc") if one.isdigit())
def kill(pid): return os.kill(pid, 0)
def capabilities():
    return [line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "CapPrm", "CapBnd"))]
def no_new_privileges(): return "NoNewPrivs:\\t1" in open("/proc/self/status").read()
def interfaces(): return [name for _, name in socket.if_nameindex()]
def connect(host, port):
    with socket.create_connection((host, port), timeout=3): return "connected"
def mount():
    code = ctypes.CDLL(None, use_errno=True).mount(b"tmpfs", b"/mnt", b"tmpfs", 0, None)
    if code: raise PermissionError(ctypes.get_errno())
def environment(): return sorted(os.environ)
def open_files():
    numbers = [int(one) for one in os.listdir("/proc/self/fd")]
    return [os.readlink(f"/proc/self/fd/{one}") for one in numbers if one > 2 and os.path.lexists(f"/proc/self/fd/{one}")]

import probe_questions
ANSWERS = [look(*question) for question in probe_questions.QUESTIONS]
raise RuntimeError(json.dumps(ANSWERS))
"""


@pytest.fixture(scope="module", params=JAILS)
def jail(request: pytest.FixtureRequest) -> Jail:
    return jail_or_skip(request.param)


class Inside:
    """Asks questions from within a jail: names of functions of `PROBE`, with their arguments."""

    def __init__(self, jail: Jail, folder: Path) -> None:
        self.submission = folder / "submission"
        self.submission.mkdir()
        self.pool = WorkerPool("cpu", folder, jail, self.submission)

    def fault(self, source: str, questions: object = (), time_s: float = 20) -> Fault:
        """What becomes of a worker that loads this."""
        (self.submission / "probe.py").write_text(source)
        (self.submission / "probe_questions.py").write_text(f"QUESTIONS = {questions!r}")
        limits = CallLimits(time_s=time_s, memory_gib=4)
        with self.pool.start() as worker, pytest.raises(Fault) as fault:
            worker.load(self.submission / "probe.py", "nothing", None, limits)
        return fault.value

    def ask(self, *questions: tuple[object, ...]) -> list[dict[str, object]]:
        answers: list[dict[str, object]] = json.loads(
            self.fault(PROBE, questions).message.removeprefix("RuntimeError: ")
        )
        return answers


Question = tuple[object, ...]


class Told:
    """What one worker in a jail answers to all that is asked, beside another worker of its pool.

    places: where it tried to write.
    """

    def __init__(self, jail: Jail, folder: Path, secret: str) -> None:
        inside, here = Inside(jail, folder), os.getpid()
        rooms = [inside.submission, inside.pool.runtime, ROOT, Path(sys.prefix), Path("/usr"), Path("/etc")]
        self.jail, self.places = jail, [room / "x" for room in rooms]
        asked = self._questions(inside, secret, here)
        with inside.pool.start():
            answers = iter(inside.ask(*(one for many in asked.values() for one in many)))
        inside.pool.close()
        self._answers = {about: [next(answers) for _ in many] for about, many in asked.items()}

    def _questions(self, inside: Inside, secret: str, judge: int) -> dict[str, list[Question]]:
        """By what they are about; in a weaker jail only what it promises: without one a question would spoil the machine."""
        paths = [inside.submission / "probe.py", "/etc/ld.so.cache", "/etc/alternatives"]
        needs: list[Question] = [("write", "file"), ("read", "/proc/self/oom_score_adj")]
        needs += [("size", str(path)) for path in paths]
        asked: dict[str, list[Question]] = {"needs": needs, "files": [("open_files",)]}
        asked["processes"] = [("processes",), ("kill", judge)]
        if self.jail.name != "none":
            folders = [inside.pool.runtime.parent, inside.pool.runtime.parent / "scratch"]
            asked["others"] = [("listdir", str(folder)) for folder in folders]
            asked["places"] = [("write", str(path)) for path in self.places]
            asked["rights"] = [("user",), ("capabilities",), ("no_new_privileges",), ("mount",)]
        if self.jail.name == "bubblewrap":
            parts = ("reference/softmax.py", "assignments/softmax/mistakes.py", "grader/judge/state.py")
            asked["course"] = [("read", path) for path in [*(str(ROOT / part) for part in parts), secret]]
            asked["network"] = [("interfaces",), ("connect", "1.1.1.1", 53)]
        return asked

    def about(self, what: str) -> list[dict[str, object]]:
        if what not in self._answers:
            pytest.skip(f"{self.jail.name} does not promise that")
        return self._answers[what]


@pytest.fixture(scope="module")
def told(jail: Jail, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder = tmp_path_factory.mktemp("told")
    open_to_workers(folder)
    with tempfile.NamedTemporaryFile(dir=Path.home()) as secret:
        return Told(jail, folder, secret.name)


def test_a_worker_in_a_jail_has_what_it_needs_and_is_the_first_to_end_where_memory_runs_out(told: Told) -> None:
    """Triton asks ldconfig for libcuda, and nvcc is often a link through /etc/alternatives."""
    scratch, score, *others = told.about("needs")
    assert (scratch, score) == ({"ok": 4}, {"ok": "1000\n"})
    assert all("ok" in one for one in others), others


def test_a_worker_does_not_find_the_folders_of_others(told: Told) -> None:
    answers = told.about("others")
    for answer in answers:
        found = answer.get("ok", [])
        assert isinstance(found, list)
        assert len([name for name in found if name not in ("runtime", "submission", "scratch")]) <= 1, (
            answers
        )  # its own


def test_a_worker_does_not_see_the_course(told: Told) -> None:
    assert [one.get("error") for one in told.about("course")] == ["FileNotFoundError"] * 4


@pytest.mark.skipif(BWRAP is None, reason="bubblewrap is not installed")
@pytest.mark.parametrize("which", ["the course", "a link to it", "its parent"])
def test_a_course_that_lies_where_tools_are_looked_for_is_not_seen(
    course: Course, start_run: StartRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """By the paths of Python, of libraries and of programs: who reads the secret by one of them has all points."""
    course.add("task")
    (course.folder / "bin").mkdir()
    (tmp_path / "link").symlink_to(course.folder)
    folder = tmp_path / "submission"
    folder.mkdir()
    secret = course.folder / "reference" / "task.py"
    (folder / "task.py").write_text(f"exec(open({str(secret)!r}).read())\n")
    places = {"the course": course.folder, "a link to it": tmp_path / "link", "its parent": course.folder.parent}
    entry = places[which]
    for named in ("PATH", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(named, f"{os.environ.get(named, '')}:{entry}")
    monkeypatch.setattr("tests.conftest.IMPORTS", f"{IMPORTS}:{entry}")
    ran = start_run(folder, "--course", course.folder, "--device", "cpu").finish()
    assert ran.report is not None, ran.errors
    assert (ran.report.isolation.jail, ran.report.score.earned) == ("bubblewrap", 0)
    assert "FileNotFoundError" in ran.case("task", "plain").message


def test_a_grader_that_is_installed_among_other_packages_has_a_jail_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'elsewhere'}")
    assert str(ROOT) not in jails.tool_folders(hidden_courses())
    packages = Path(sysconfig.get_path("purelib")).resolve()
    monkeypatch.setattr(grader, "__file__", str(packages / "grader" / "__init__.py"))
    assert sys.prefix in jails.tool_folders(hidden_courses())  # where no course was installed
    assert sys.prefix in jails.tool_folders([packages / "grader" / INSTALLED])


def test_folders_that_pth_files_add_are_seen_unless_they_hold_a_course(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, other, course = (tmp_path_factory.mktemp(name) for name in ("packages", "other", "course"))
    lines = ["# a comment", "", "import site", str(other), "lib/../beside", str(course), str(course.parent)]
    (packages / "torch.pth").write_text("\n".join(lines))
    monkeypatch.setattr(jails.sysconfig, "get_path", lambda _name: str(packages))
    folders = jails.tool_folders([course])
    assert {str(packages), str(other), str(packages / "beside")} <= set(folders)
    assert not {str(course), str(course.parent), str(packages / "import site")} & set(folders)


@pytest.mark.skipif(BWRAP is None, reason="bubblewrap is not installed")
@pytest.mark.parametrize("seen_as", ["system", "tools", "a link to tools", "tools in the course"])
def test_a_course_inside_what_a_worker_sees_is_covered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen_as: str
) -> None:
    """As a course below /usr, or a checkout there that has the environment in it."""
    open_to_workers(tmp_path)
    folder, link, scratch = tmp_path / "folder", tmp_path / "link", tmp_path / "scratch"
    course = folder / INSTALLED
    for made in (course / "reference", course / "bin", scratch):
        made.mkdir(parents=True)
    for path in (course / "reference/task.py", course / "bin/tool", folder / "library"):
        path.write_text("readable")
    link.symlink_to(folder)
    monkeypatch.setenv("GRADER_COURSE", str(link / INSTALLED))
    tools = {"a link to tools": link, "tools in the course": course / "bin", "tools": folder}
    if seen_as in ("system", "tools in the course"):
        monkeypatch.setattr(jails, "SYSTEM", (*jails.SYSTEM, str(tmp_path.parents[-2])))
    if seen_as in tools:
        monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{tools[seen_as]}")
    inside = link if seen_as == "a link to tools" else folder
    paths = [inside / "library", inside / INSTALLED / "reference/task.py", inside / INSTALLED / "bin/tool"]
    program = "import os, sys; print([os.path.exists(one) for one in sys.argv[1:]])"
    command = JAILS["bubblewrap"].command([sys.executable, "-I", "-c", program, *map(str, paths)], [scratch], [])
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([True, False, seen_as == "tools in the course"])


def test_an_installed_course_that_cannot_be_closed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    course = tmp_path / "grader" / INSTALLED
    course.mkdir(parents=True)
    course.chmod(0o755)
    monkeypatch.setattr(grader, "__file__", str(tmp_path / "grader" / "__init__.py"))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "chmod", lambda *_: os.close(-1))
        with pytest.raises(CourseOpen, match=f"do `chmod 700 {course}`"):
            close_installed_course()
    close_installed_course()
    assert course.stat().st_mode & 0o777 == 0o700


def test_a_worker_writes_nowhere_but_in_its_scratch_folder(told: Told) -> None:
    answers = told.about("places")
    assert all("error" in one for one in answers), answers
    assert not any(path.exists() for path in told.places)


AS_ANYBODY = ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if ROOT_HERE else []
WRITES = """
import subprocess, sys, tempfile
from pathlib import Path
from grader.pool.jail import strongest_jail
PROGRAM = '''
import os, sys
for folder, _, _ in os.walk("/"):
    if not folder.startswith("/proc"):
        try:
            open(os.path.join(folder, "left-behind"), "w").close()
            print(folder)
        except OSError:
            pass
'''
jail = strongest_jail()
with tempfile.TemporaryDirectory() as folder:
    command = jail.command([sys.executable, "-I", "-c", PROGRAM], [Path(folder)], [])
    print(jail.name, folder, subprocess.run(command, capture_output=True, text=True, check=True).stdout, sep="\\n")
"""


@pytest.mark.skipif(BWRAP is None, reason="bubblewrap is not installed")
def test_bubblewrap_leaves_the_graders_own_user_nothing_to_write_to_but_the_scratch_folder() -> None:
    """Most who grade are not root, and their workers are the same user: what lies in memory there is counted by nobody."""
    if AS_ANYBODY and subprocess.run([*AS_ANYBODY, "true"], capture_output=True).returncode != 0:
        pytest.skip("no user namespaces here")
    command = [*AS_ANYBODY, sys.executable, "-c", WRITES]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    name, folder, *written = done.stdout.split()
    assert name == "bubblewrap", done.stderr
    assert written == [folder]


def test_a_worker_has_no_rights(told: Told) -> None:
    user, capabilities, privileges, mount = told.about("rights")
    if ROOT_HERE:
        assert user == {"ok": [worker_uid(), worker_uid(), []]}
    assert all(int(one, 16) == 0 for one in capabilities["ok"])  # type: ignore[attr-defined]
    assert privileges == {"ok": True}
    assert "error" in mount


def test_a_worker_sees_no_process_outside_its_jail(told: Told, jail: Jail) -> None:
    processes, kill = told.about("processes")
    if jail.name == "bubblewrap":
        # bubblewrap, the fork server and workers of the same submission
        assert len(processes["ok"]) <= 4  # type: ignore[arg-type]
    if jail.name != "none":
        assert "error" in kill


def test_a_worker_has_no_network(told: Told) -> None:
    interfaces, connect = told.about("network")
    assert interfaces == {"ok": ["lo"]}
    assert "error" in connect


def test_a_worker_finds_no_files_of_the_judge_open(told: Told) -> None:
    (files,) = told.about("files")
    names = [name for name in files["ok"] if not name.startswith("/proc/")]  # type: ignore[attr-defined]
    assert len([name for name in names if name.startswith("socket:")]) == 1, names
    assert not [name for name in names if str(ROOT) in name], names


def test_the_strongest_jail_is_bubblewrap_where_it_works() -> None:
    expected = "bubblewrap" if BWRAP else "uid" if ROOT_HERE and SETPRIV else "none"
    assert strongest_jail().name == expected


def test_each_grading_has_a_user_of_its_own() -> None:
    """The kernel counts processes by user, on the whole machine: one submission must not use up what another may start."""
    program = [sys.executable, "-c", "from grader.pool.jail import worker_uid; print(worker_uid(), worker_uid())"]
    found = [subprocess.run(program, capture_output=True, text=True, check=True, cwd=ROOT).stdout for _ in range(2)]
    first, second = ({int(word) for word in words.split()} for words in found)
    assert (len(first), len(second)) == (1, 1)
    assert first != second
    assert all(uid in USERS for uid in first | second)


@pytest.mark.skipif(not (ROOT_HERE and SETPRIV), reason="only root can give a worker another user")
def test_another_user_is_no_jail_where_it_finds_no_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{broken_jails(tmp_path / 'broken', ['bwrap'])}:{os.environ['PATH']}")
    open_to_workers(tmp_path)
    run = tmp_path / "run"
    run.mkdir(0o700)
    assert strongest_jail(run).name == "uid"
    tmp_path.chmod(0o700)
    assert strongest_jail(run) == NO_JAIL


def test_a_jail_that_does_not_work_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{broken_jails(tmp_path / 'broken')}:{os.environ['PATH']}")
    assert strongest_jail() == NO_JAIL


@pytest.mark.skipif(not (ROOT_HERE and SETPRIV), reason="only root can give a worker another user")
@pytest.mark.parametrize(("mode", "reached"), [(0o666, True), (0o600, False)])
def test_a_jail_where_a_worker_could_not_open_the_gpu_is_not_taken(
    mode: int, reached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.NamedTemporaryFile(dir="/var/lib") as file:
        node = Path(file.name)
        node.chmod(mode)
        monkeypatch.setattr(jails, "DRIVER_NODES", [str(node)])
        assert (strongest_jail(device="cuda") != NO_JAIL) == reached
        assert strongest_jail() != NO_JAIL, "who grades on a CPU does not mind"
