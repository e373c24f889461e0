"""subprocess from threads: pipes, preexec_fn, timeouts, sessions, many children, shell pipelines."""

import concurrent.futures as futures
import os
import signal
import subprocess
import sys

from case import check, verdict

run = subprocess.run
out = run(["echo", "said"], capture_output=True, check=True).stdout
check("run", out == b"said\n", out)

data = os.urandom(1 << 20)
out = run(["cat"], input=data, capture_output=True).stdout
check("large_pipe", out == data, len(out))

codes = [run(["sh", "-c", f"exit {i}"]).returncode for i in (0, 3, 127)]
check("exit_codes", codes == [0, 3, 127], codes)
code = run(["sh", "-c", "kill -TERM $$"]).returncode
check("killed_child", code == -signal.SIGTERM, code)

out = run(["sh", "-c", "echo $PREPARED; pwd"], capture_output=True, cwd="/",
          env={**os.environ, "PREPARED": "yes"}).stdout
check("environment", out == b"yes\n/\n", out)

with subprocess.Popen(["sh", "-c", "umask"], stdout=subprocess.PIPE,
                      preexec_fn=lambda: os.umask(0o123)) as child:
    out = child.stdout.read()
check("preexec_fn", out.strip() == b"0123", out)

try:
    run(["sleep", "1000"], timeout=0.05)
    check("timeout", False, "it ended")
except subprocess.TimeoutExpired:
    check("timeout", True)

child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
session = os.getsid(child.pid)
os.killpg(session, signal.SIGKILL)
check("session", session == child.pid and child.wait() == -9, (session, child.pid))


def one(number):
    done = run([sys.executable, "-c", f"print({number} ** 2)"] if number % 10 == 0 else
               ["sh", "-c", f"echo {number * number}"], capture_output=True)
    return int(done.stdout)


with futures.ThreadPoolExecutor(8) as pool:
    squares = list(pool.map(one, range(60)))
check("many_children", squares == [i * i for i in range(60)], squares)

first = subprocess.Popen(["seq", "1", "20000"], stdout=subprocess.PIPE)
second = subprocess.Popen(["sort", "-rn"], stdin=first.stdout, stdout=subprocess.PIPE)
first.stdout.close()
lines = second.communicate()[0].split()
check("pipeline", lines == [b"%d" % i for i in range(20000, 0, -1)] and first.wait() == 0, len(lines))

script = """
import os, threading
threads = [threading.Thread(target=os.write, args=(1, b"1\\n")) for _ in range(5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
out = run([sys.executable, "-c", script], capture_output=True).stdout
check("threaded_child", out.split() == [b"1"] * 5, out)
verdict()
