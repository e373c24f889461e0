"""Signal handlers run in the main thread while other threads run, sleep and hold locks; alarm,
setitimer, sigwait, pthread_kill, wake-up descriptor, KeyboardInterrupt."""

import os
import signal
import socket
import threading
import time

from case import check, verdict

seen, stop = [], threading.Event()


def handler(number, frame):
    seen.append((number, threading.current_thread() is threading.main_thread()))


def spin():
    while not stop.is_set():
        sum(range(200))


def nap():
    while not stop.is_set():
        time.sleep(0.001)


threads = [threading.Thread(target=body) for body in (spin, spin, nap, nap)]
for thread in threads:
    thread.start()

signal.signal(signal.SIGUSR1, handler)
for turn in range(50):
    os.kill(os.getpid(), signal.SIGUSR1)
    while len(seen) <= turn:
        time.sleep(0.0002)
check("handler_in_main", all(main for _, main in seen) and len(seen) == 50, len(seen))

signal.signal(signal.SIGALRM, handler)
seen.clear()
signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
while len(seen) < 10:
    time.sleep(0.001)
signal.setitimer(signal.ITIMER_REAL, 0)
check("itimer", all(main for _, main in seen))

# time.sleep goes on after a handler, to its full length.
signal.setitimer(signal.ITIMER_REAL, 0.01)
before = time.monotonic()
time.sleep(0.05)
check("sleep_after_signal", time.monotonic() - before >= 0.05)

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
caught = []
waiter = threading.Thread(target=lambda: caught.append(signal.sigwait([signal.SIGUSR2])))
waiter.start()
signal.pthread_kill(waiter.ident, signal.SIGUSR2)
waiter.join()
check("sigwait", caught == [signal.SIGUSR2], caught)

here, there = socket.socketpair()
there.setblocking(False)
old = signal.set_wakeup_fd(there.fileno())
os.kill(os.getpid(), signal.SIGUSR1)
check("wakeup_fd", here.recv(1) == bytes([signal.SIGUSR1]))
signal.set_wakeup_fd(old)

try:
    killer = threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGINT))
    killer.start()
    time.sleep(60)
    check("keyboard_interrupt", False, "it slept for a minute")
except KeyboardInterrupt:
    check("keyboard_interrupt", True)
killer.join()


class Raised(Exception):
    pass


def raise_once(number, frame):
    if not raised:
        raised.append(number)
        raise Raised


# A handler that raises ends a blocking read. The timer repeats: a signal that comes between the
# interpreter's look at its flags and the system call interrupts nothing.
raised = []
signal.signal(signal.SIGALRM, raise_once)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    os.read(os.pipe()[0], 1)
    check("raise_in_read", False, "the read returned")
except Raised:
    check("raise_in_read", True)
signal.setitimer(signal.ITIMER_REAL, 0)
stop.set()
for thread in threads:
    thread.join()
verdict()
