"""Cheats: modules that answer rightly, or nearly, and try to look faster than they are. None may be paid for speed.

The cheats compete with `BASELINE`. `slow` is honest work that takes `SLOWER` times as long; no arrangement of this
work, and no false claim about it, may reach half the baseline's speed. `speed_cases` takes a device's name; the rest is
the same for all devices.

`module` joins cheats into one file that is graded once, with a speed case for each. The file tells the cheats apart by
the length of their input, and each begins with the worker as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPEATS = 80  # a millisecond on one core
SLOWER = 10
N = 20_000  # elements of float32
BANDS = '{ vs = "eager", speedup = 0.5, points = 2 }, { vs = "eager", speedup = 1.0, points = 3 }'
# Short, for a noisy machine: few calls and rounds, and more rounds where noise leaves a band undecided; only claims below half are
# doubted, and no submission is stopped early.
TIMING = """
[timing]
batch_s = 0.01
max_calls = 4
rounds = 3
margin = 0.5
slow_limit = SLOW_LIMIT
"""

# The baseline. It records when it ran.
BASELINE = f"""
import time
from pathlib import Path
import torch

torch.set_num_threads(1)  # torch.sin has several even here: they wait for each other where a neighbour has a core
RECORD = Path(__file__).with_name("eager.txt").open("a", buffering=1)

def eager(x):
    started = time.monotonic()
    scratch = torch.empty_like(x)
    for _ in range({REPEATS}):
        torch.sin(x, out=scratch)
    y = x * 2
    RECORD.write(f"{{x.numel()}} {{started}} {{time.monotonic()}}\\n")
    return y
"""

PRELUDE = f"""
import atexit, builtins, ctypes, gc, os, signal, subprocess, sys, threading, time
import torch
from grader import protocol
from grader.worker import run, timing

N, REPEATS, RECORD = {N}, {REPEATS}, "RECORD_FILE"
torch.set_num_threads(1)  # as in the baseline

def work(x, times):
    scratch = torch.empty_like(x)
    for _ in range(int(times * REPEATS)):
        torch.sin(x, out=scratch)
    return x * 2

def slow(x):
    return work(x, {SLOWER})

def batch():
    "The locals of the function that times us: marks, arguments, start, request, self ..."
    frame = sys._getframe(1)
    while "marks" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals

def is_last():
    "Whether this is the last call of the batch."
    here = batch()
    return here["arguments"] is here["self"]._sets[here["request"].calls - 1][0]

def claim_nothing():
    timing._HostMark.seconds_to = timing._DeviceMark.seconds_to = lambda *_: 1e-9

def keep_record():
    "Write down, every millisecond, that this process runs."
    with open(RECORD, "a", buffering=1) as record:
        while True:
            record.write(f"{{time.monotonic()}}\\n")
            end = time.monotonic() + 1e-3
            while time.monotonic() < end:
                pass

def hop(act):
    "Start a process that does something every half a millisecond, each time as a new child of the one before."
    program = (
        "import os, time\\n"
        f"record = os.open({{RECORD!r}}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)\\n"
        "end = time.monotonic() + 6\\n"
        "while time.monotonic() < end:\\n"
        "    if os.fork():\\n"
        "        os._exit(0)\\n"
        f"    {{act}}\\n"
        "    pause = time.monotonic() + 5e-4\\n"
        "    while time.monotonic() < pause:\\n"
        "        pass\\n"
    )
    return subprocess.Popen([sys.executable, "-S", "-c", program], start_new_session=True)

def restore(places=(timing, timing._HostMark, timing._DeviceMark, run, protocol, time)):
    "Put back what an earlier cheat has changed."
    for place, names in zip(places, originals):
        for name, value in names.items():
            if not name.startswith("__") and getattr(place, name) is not value:
                setattr(place, name, value)
    modes = torch.utils._python_dispatch
    stack = [modes._pop_mode() for _ in range(modes._len_torch_dispatch_stack())]
    for mode in (mode for mode in reversed(stack) if isinstance(mode, run.OperatorWatch)):
        modes._push_mode(mode)

originals = [dict(vars(place)) for place in restore.__defaults__[0]]
now = [0, None]

def double(x):
    number = x.numel()
    if number < N:
        return x * 2
    if number != now[0]:
        restore()
        now[:] = number, dict(globals())
        exec(CODES[number - N], now[1])
    return now[1]["timed"](x)

"""


@dataclass(frozen=True)
class Cheat:
    """A cheat.

    Attributes:
        how: the cheat in a sentence.
        code: the module after `PRELUDE`; defines `timed(x)`, which is called only in speed cases.
        outcome: how its speed case ends (`|` between two).
        says: a regular expression for the words that a student or TA reads; "" if the cheat was measured rightly.
    """

    how: str
    code: str
    outcome: str = "passed"
    says: str = ""


LIES = "not corroborated: the worker says .* a call, by the judge's clock it was .*; the judge's time counts"
STALE = r"in call \d+ of \d+ in a timed batch, each on new data: "
UNWRITTEN = STALE + ".*(never written|expected)"
GONE = STALE + ".*got nan"  # NaN: the inputs are gone when results are collected

CHEATS = {
    # The clock -------------------------------------------------------------------------------------------------------
    "clock_of_the_worker": Cheat(
        "the worker's clock goes a thousand times slower",
        """
zero, clock = time.perf_counter(), time.perf_counter
timing.perf_counter = lambda: zero + (clock() - zero) / 1000
timing._DeviceMark.seconds_to = lambda *_: 1e-6
timed = slow
""",
        says=LIES,
    ),
    "clock_of_the_module": Cheat(
        "the clocks of `time` and the builtins stand still, which the worker has taken its own from before",
        """
time.perf_counter = time.monotonic = time.time = builtins.perf_counter = lambda: 0.0
timed = slow
""",
    ),
    "marks": Cheat("the difference of two marks is next to nothing", "claim_nothing()\ntimed = slow\n", says=LIES),
    "forged_reply": Cheat(
        "the frame that the worker sends is changed on its way: the worker puts its own functions back",
        """
def write(pipe, reply, write=protocol.write):
    times_s = (1e-9,) * len(reply.times_s)
    write(pipe, protocol.Reply(**vars(reply) | {"times_s": times_s}))

protocol.write = write
timed = slow
""",
    ),
    "no_clock": Cheat(
        "times that are no times",
        "timing._HostMark.seconds_to = timing._DeviceMark.seconds_to = lambda *_: -1.0\ntimed = slow\n",
        outcome="crashed",
        says="the worker's connection was misused",
    ),
    # Work outside the marks ------------------------------------------------------------------------------------------
    "lazy_subclass": Cheat(
        "a tensor that computes when it is read",
        """
class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        plain = [slow(one.owed) if isinstance(one, Lazy) else one for one in arguments]
        return function(*plain, **(options or {}))

def timed(x):
    y = torch.empty_like(x).as_subclass(Lazy)
    y.owed = x
    return y
""",
        outcome="failed",
        says="a tensor subclass, Lazy",
    ),
    "lazy_mode": Cheat(
        "a plain tensor, and a mode that computes when it is copied; put up after the first call, around which the worker has its own",
        """
from torch.utils._python_dispatch import TorchDispatchMode

owed, calls = {}, []

class WhenCopied(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        if function is torch.ops.aten._foreach_copy_.default:
            results = [slow(owed.pop(one.data_ptr())) if one.data_ptr() in owed else one for one in arguments[1]]
            arguments = (arguments[0], results)
        elif function is torch.ops.aten.copy_.default and arguments[1].data_ptr() in owed:
            arguments = (arguments[0], slow(owed.pop(arguments[1].data_ptr())))
        return function(*arguments, **(options or {}))

def timed(x):
    calls.append(1)
    if len(calls) == 1:
        return slow(x)
    if len(calls) == 2:
        WhenCopied().__enter__()
    y = torch.empty_like(x)
    owed[y.data_ptr()] = x
    return y
""",
        outcome="failed",
        says=STALE + ".*got never written",  # the mode sees no copy of results
    ),
    "deliver": Cheat(
        "the worker's own function for handing in computes",
        """
def deliver(given, deliver=run.deliver):
    return deliver([(slow(inputs[0]) if slot.numel() >= N else result, slot, inputs) for result, slot, inputs in given])

timing.deliver = deliver
timed = torch.empty_like
""",
        outcome="failed",
        says=GONE,
    ),
    "late_copy": Cheat(
        "the same, from a copy of the inputs that was made in time",
        """
def deliver(given, deliver=run.deliver):
    return deliver([(slow(result) if slot.numel() >= N else result, slot, inputs) for result, slot, inputs in given])

timing.deliver = deliver
timed = torch.clone
""",
        says=LIES,
    ),
    "late_list": Cheat(
        "the list of results computes when the worker goes through it to hand them in",
        """
class Late(list):
    def __iter__(self):
        return ([slow(x)] for x in self.inputs)

def timed(x):
    here = batch()
    if not isinstance(here["self"].results, Late):
        here["self"].results = Late()
    here["self"].results.inputs = [one[0][0] for one in here["self"]._sets[: here["request"].calls]]
    return torch.empty_like(x)
""",
        outcome="failed",
        says=GONE,
    ),
    "first_call": Cheat(
        "the first call computes the whole batch, the others hand in what it found",
        """
found = {}

def timed(x):
    if not found:
        here = batch()
        found.update({one[0][0].data_ptr(): slow(one[0][0]) for one in here["self"]._sets[: here["request"].calls]})
    return found.pop(x.data_ptr())
""",
    ),
    "last_call": Cheat(
        "only the last call computes, for all, and claims nothing",
        """
claim_nothing()

def timed(x):
    here = batch()
    if not is_last():
        return torch.empty_like(x)
    for (arguments, _, _), (y,) in zip(here["self"]._sets, here["self"].results):
        y.copy_(slow(arguments[0]))
    return slow(x)
""",
        says=LIES,
    ),
    "merged_calls": Cheat(
        "the last call computes for all, in one go: that saves what each call takes beside its work, which is little here",
        """
def timed(x):
    if not is_last():
        return torch.empty_like(x)
    here = batch()
    *results, last = slow(torch.stack([one[0][0] for one in here["self"]._sets[: here["request"].calls]]))
    for (y,), result in zip(here["self"].results, results):
        y.copy_(result)
    return last.clone()
""",
    ),
    "waste": Cheat(
        "batches of few calls are made slow, so that longer ones look cheap beside them",
        """
claim_nothing()

def timed(x):
    if batch()["request"].calls <= 4:
        time.sleep(0.05)
    return slow(x)
""",
        says=LIES,
    ),
    # Work after the end ----------------------------------------------------------------------------------------------
    "thread": Cheat(
        "a thread computes when the function has returned",
        """
def timed(x):
    y = torch.empty_like(x)
    threading.Thread(target=lambda: y.copy_(slow(x)), daemon=True).start()
    return y
""",
        outcome="failed",
        says=UNWRITTEN,
    ),
    "child": Cheat(
        "a forked child computes when the function has returned, beside a frozen parent",
        """
def timed(x):
    y = torch.empty_like(x).share_memory_()
    if os.fork() == 0:
        y.copy_(slow(x))
        os._exit(0)
    return y
""",
        outcome="failed",
        says=UNWRITTEN,
    ),
    "escaped_child": Cheat(
        "so does a child in a session of its own, which also wakes its parent now and then",
        """
def timed(x):
    y, parent = torch.empty_like(x).share_memory_(), os.getpid()
    if os.fork() == 0:
        os.setsid()
        for _ in range(20):
            work(x, 0.5)
            os.kill(parent, signal.SIGCONT)
        y.copy_(x * 2)
        os._exit(0)
    return y
""",
        outcome="failed|crashed",  # or ended: a process that wakes its parent cannot be frozen
        says=f"{UNWRITTEN}|could not be made to stand still",
    ),
    # Memory ----------------------------------------------------------------------------------------------------------
    "by_pointer": Cheat(
        "answers are kept by the input's address",
        """
kept = {}

def timed(x):
    if x.data_ptr() not in kept:
        kept[x.data_ptr()] = slow(x)
    return kept[x.data_ptr()].clone()
""",
        outcome="failed",
        says=STALE,
    ),
    "by_shape": Cheat(
        "answers are kept by the input's shape",
        """
kept = {}

def timed(x):
    if x.shape not in kept:
        kept[x.shape] = slow(x)
    return kept[x.shape].clone()
""",
        outcome="failed",
        says=STALE,
    ),
    "by_count": Cheat(
        "answers are kept by the number of the call in its batch",
        """
kept = {}

def timed(x):
    number = len(batch()["self"].results)
    if number not in kept:
        kept[number] = slow(x)
    return kept[number].clone()
""",
        outcome="failed",
        says=STALE,
    ),
    "by_content": Cheat(
        "answers are kept by what the input holds, which is the same in all batches before the rounds",
        """
kept = {}

def timed(x):
    key = hash(tuple(x[:8].tolist()))
    if key not in kept:
        kept[key] = slow(x)
    return kept[key].clone()
""",
    ),
    "second_race": Cheat(
        "claims nothing, so that there is a second race, writes down in the first what it finds, and looks it up in the second",
        """
import pickle

STORE = RECORD + ".answers"
known = {}
if os.path.exists(STORE):
    with open(STORE, "rb") as file:
        while file.peek(1):
            known.update(pickle.load(file))
else:
    claim_nothing()
first = not known

def timed(x):
    key = hash(tuple(x[:8].tolist()))
    if key in known:
        return known[key].clone()
    y = slow(x)
    if first:
        with open(STORE, "ab") as file:
            pickle.dump({key: y}, file)
    return y
""",
        says="timed twice: in the first run the worker said",
    ),
    "in_advance": Cheat(
        "the answers are left where the last batch's results were collected; before the rounds all batches have the same inputs",
        """
places = {}

def deliver(given):
    for _, slot, inputs in given:
        place = places.setdefault(inputs[0].data_ptr(), slot)
        place.copy_(slow(inputs[0]))
    return run.deliver([(result, torch.empty_like(slot), inputs) for result, slot, inputs in given])

timing.deliver = deliver
timed = torch.empty_like
""",
        outcome="failed",
        says=STALE + ".*(never written|got nan)",
    ),
    # Answers that hold until the check -------------------------------------------------------------------------------
    "wrong_later": Cheat(
        "right in correctness and in the first calls that are timed",
        """
calls = 0

def timed(x):
    global calls
    calls += 1
    return slow(x) if calls < 7 else torch.empty_like(x).copy_(x)
""",
        outcome="failed",
        says=STALE + r"y\[0\] is the first wrong element",
    ),
    "wrong_once": Cheat(
        "one element of the last answer in a batch is wrong",
        """
def timed(x):
    y = x * 2
    if batch()["request"].calls > 1 and is_last():
        y[10_000] += 1
    return y
""",
        outcome="failed",
        says=STALE + r"y\[10000\] is the first wrong element",
    ),
    "changed_input": Cheat(
        "the answer is written over the input, in the timed calls alone",
        "def timed(x):\n    y = x * 2\n    x.zero_()\n    return y\n",
        outcome="failed",
        says="the input x of call 0 was changed",
    ),
    # Neighbours ------------------------------------------------------------------------------------------------------
    "busy": Cheat(
        "a thread and a child are left behind, to keep the baselines from their work",
        """
started = []

def timed(x):
    if not started:
        started.append(threading.Thread(target=keep_record, daemon=True))
        started[0].start()
        if os.fork() == 0:
            keep_record()
        if os.fork() == 0:
            os.setsid()
            keep_record()
    return slow(x)
""",
    ),
}


def late_thread(pause_s: float, times: float) -> str:
    """Code of a thread that does a batch's work after the batch's last call; collecting results waits for the
    thread.
    """
    return f"""
threads = []
timing.deliver = lambda *arguments: [one.join() for one in threads] and run.deliver(*arguments)

def late(inputs, results):
    time.sleep({pause_s})
    for x, y in zip(inputs, results):
        y.copy_(work(x, {times}))

def timed(x):
    y, here = torch.empty_like(x), batch()
    if is_last():
        inputs = [one[0][0] for one in here["self"]._sets[: here["request"].calls]]
        results = [*(one[0] for one in here["self"].results), y]
        threads[:] = [threading.Thread(target=late, args=(inputs, results), daemon=True)]
        threads[0].start()
    return y
"""


# Cheats of this kind won, or kept running, in a version of the grader. They use the moments at which a worker is thawed
# and frozen.
OVERCOME = {
    "while_thawed": Cheat(
        "a thread computes while the judge wakes what the worker has started, before its clock goes on; a crowd makes that long",
        "claim_nothing()\ncrowd = [subprocess.Popen(['sleep', '60'], start_new_session=True) for _ in range(240)]\n"
        + late_thread(pause_s=0.02, times=2.5),  # the worker is frozen and thawed during the pause
        says=LIES,
    ),
    "awaited_thread": Cheat(
        "a thread computes a whole batch, and the worker's function for handing in waits for it: without a crowd, less is saved",
        late_thread(pause_s=0, times=SLOWER),
        says=LIES,
    ),
    "hopping": Cheat(
        "a process is left behind that is gone, but for a new child, before it can be stopped",
        """
started = []

def timed(x):
    if not started:
        started.append(hop("os.write(record, (str(time.monotonic()) + chr(10)).encode())"))
    return slow(x)
""",
    ),
}


def speed_cases(names: Sequence[str], device: str, slow_limit: float = 1000, bands: str = BANDS) -> str:
    """The speed cases of `module`, with the rules of timing, as a part of problem.toml."""
    cases = [
        f'[[part.speed]]\nname = "{name}"\ndevices = ["{device}"]\nn = {N + index}\nbands = [ {bands} ]\n'
        for index, name in enumerate(names)
    ]
    return TIMING.replace("SLOW_LIMIT", str(slow_limit)) + "\n".join(cases)


def module(codes: Mapping[str, str], record: Path) -> str:
    """A submission of these cheats. `keep_record` writes to `record`."""
    return (PRELUDE + f"CODES = {list(codes.values())!r}\n").replace("RECORD_FILE", str(record))
