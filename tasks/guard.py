"""A small process that stands between a flow and a command: nothing of the command outlives the flow.

    python guard.py GRACE_S spare|tell COMMAND...

The caller starts it in a session of its own, so that it leads the one process group of the task, and holds the other end
of its standard input. When that pipe closes, be it on purpose or because the caller was killed, or when the guard gets
SIGTERM, the command is stopped: every member of the group gets SIGTERM (with `spare` all but the command's own process:
`dvc` has to outlive its stage to record the end and free its locks); what is left after GRACE_S seconds is killed. The
guard ends when the group is empty, with the command's exit status. File descriptors that the caller passes on, such as
the project's lock, therefore stay open for as long as anything works.

Run as a file, with the standard library and psutil only, so that it starts in a moment.
"""

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil

POLL_S = 0.1
SETTLE_S = 2.0  # for helpers of a command that ended by itself, such as multiprocessing's resource tracker


def members() -> list[int]:
    """Process ids of the guard's group without its own; ended ones that wait to be reaped do not count."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == os.getpgrp() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            continue  # gone meanwhile, or another user's
    return [pid for pid in found if pid != os.getpid()]


def send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def empty_within(command: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait until the group is empty; False when it is not after `seconds`."""
    deadline = time.monotonic() + seconds
    while command.poll() is None or members():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def stop(command: subprocess.Popen[bytes], grace_s: float, spare: bool) -> None:
    """Empty the group: SIGTERM once to each member, also to those that appear meanwhile, then SIGKILL."""
    deadline = time.monotonic() + grace_s
    told = {command.pid} if spare else set()
    while time.monotonic() < deadline:
        for pid in set(members()) - told:
            send(pid, signal.SIGTERM)
            told.add(pid)
        if empty_within(command, POLL_S):
            return
    print(f"still there {grace_s:.0f} s after the request to stop, killed", file=sys.stderr, flush=True)
    while not empty_within(command, POLL_S):
        for pid in members():
            send(pid, signal.SIGKILL)


def main(grace_s: float, spare: bool, words: list[str]) -> int:
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, frame: asked.append(received))
    command = subprocess.Popen(words, stdin=subprocess.DEVNULL, close_fds=False)
    while command.poll() is None:
        if asked or select.select([sys.stdin], [], [], POLL_S)[0]:  # readable: closed, for nobody ever writes
            stop(command, grace_s, spare)
            break
    if not empty_within(command, SETTLE_S):
        stop(command, grace_s, spare=False)
    status = command.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2] == "spare", sys.argv[3:]))
