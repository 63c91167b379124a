"""Runs pyverbs' own tests, each in a process of its own and with a time limit.

    python3 run.py DIRECTORY ADDRESS SECONDS [PART OF A NAME ...]

DIRECTORY holds the package `tests` of rdma-core; ADDRESS is that of the first device, which the
tests would otherwise look up under /sys/class/infiniband. Prints a line for each test:

    passed  NAME
    skipped NAME: REASON
    failed  NAME: LAST LINE OF THE ERROR
    hangs   NAME
"""

import importlib
import os
import re
import signal
import sys
import tempfile
import time
import unittest

directory, address, limit, *parts = sys.argv[1:]
sys.argv[1:] = []
sys.path[:0] = [directory, os.path.join(directory, "tests")]

from args_parser import parser  # noqa: E402

parser.parse_args()

from tests import base, utils  # noqa: E402


def know_address(self, dev, port, index):
    """In place of looking into sysfs: every address here has the same hardware address."""
    self.args.append([dev, port, index, address, "02:00:00:00:00:01"])


base.RDMATestCase._get_ip_mac = know_address

# Devices here need no rights, so that no test is left out for want of them.
utils.is_root = lambda: True

# There are no datagrams here, and the tests of rdma_cm only ask whether they fail on a few devices.
base.RDMACMBaseTest.is_eth_and_has_roce_hw_bug = lambda self: True


def all_tests(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from all_tests(item)
        else:
            yield item


def load():
    loader = unittest.defaultTestLoader
    files = sorted(os.listdir(os.path.join(directory, "tests")))
    names = [name[:-3] for name in files if re.fullmatch(r"test_\w+\.py", name)]
    for name in names:
        module = importlib.import_module("tests." + name)
        yield from all_tests(loader.loadTestsFromModule(module))


def one_line(text):
    return " ".join(text.split())


def verdict(test):
    """Runs a test in this process."""
    result = unittest.TestResult()
    test.run(result)
    problems = result.errors + result.failures
    if problems:
        print(problems[0][1])
        lines = [line for line in problems[0][1].splitlines() if line.strip()]
        return "failed", one_line(lines[-1])
    if result.skipped:
        return "skipped", one_line(result.skipped[0][1])
    return "passed", ""


def child(test, output, answer):
    os.setsid()
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    word, reason = verdict(test)
    sys.stdout.flush()
    os.write(answer, (word + "\n" + reason).encode())
    # Without tearing the interpreter down: that is the library's exit, not the test's.
    os._exit(0)


def wait(pid):
    """The exit status, or None when the time is up."""
    deadline = time.monotonic() + float(limit)
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.002)
    return None


def run(test):
    ours, theirs = os.pipe()
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            child(test, output, theirs)
        os.close(theirs)
        status = wait(pid)
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if status is None:
            os.waitpid(pid, 0)
        answer = os.read(ours, 65536).decode() if status is not None else ""
        os.close(ours)
        output.seek(0)
        said = output.read().decode(errors="replace")
    return status, answer, said


def line(name, status, answer):
    if status is None:
        return f"hangs   {name}"
    if not answer:
        return f"failed  {name}: the process ended with status {status}"
    word, reason = answer.split("\n", 1)
    return f"{word:7} {name}" + (f": {reason}" if reason else "")


for test in load():
    name = test.id()
    if parts and not any(part in name for part in parts):
        continue
    status, answer, said = run(test)
    if "Address already in use" in said:
        # The tests draw their ports by lot, and other programs run at the same time.
        status, answer, said = run(test)
    print(line(name, status, answer), flush=True)
    if not answer.startswith(("passed", "skipped")):
        print("\n".join("    " + text for text in said.splitlines()[-30:]), flush=True)
