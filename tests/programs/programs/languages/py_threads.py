"""Many threads, thread-locals, queues, names and identities, exceptions, daemon threads."""

import queue
import sys
import threading
import time

from case import check, verdict

tasks, results = queue.Queue(), queue.SimpleQueue()


def work():
    while (item := tasks.get()) is not None:
        results.put(item * item)
        tasks.task_done()


threads = [threading.Thread(target=work) for _ in range(50)]
for thread in threads:
    thread.start()
for item in range(3000):
    tasks.put(item)
tasks.join()
for _ in threads:
    tasks.put(None)
for thread in threads:
    thread.join()
total = sum(results.get() for _ in range(3000))
check("queue", total == sum(i * i for i in range(3000)), total)

bounded, received = queue.Queue(maxsize=2), []


def drain():
    while (item := bounded.get()) is not None:
        received.append(item)


reader = threading.Thread(target=drain)
reader.start()
for item in range(500):
    bounded.put(item)
bounded.put(None)
reader.join()
check("bounded_queue", received == list(range(500)), len(received))
try:
    bounded.get(timeout=0.02)
    check("queue_timeout", False, "there was an item")
except queue.Empty:
    check("queue_timeout", True)

local, wrong = threading.local(), []


def own(number):
    local.number = number
    for _ in range(20):
        time.sleep(0)
        if local.number != number or threading.current_thread().name != f"n{number}":
            wrong.append(number)
    if threading.get_native_id() != native:
        idents.add(threading.get_native_id())


native, idents = threading.get_native_id(), set()
threads = [threading.Thread(target=own, args=(i,), name=f"n{i}") for i in range(200)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check("thread_local", not wrong, wrong)
check("native_id", len(idents) >= 1, idents)

threading.stack_size(256 * 1024)
gate, inside = threading.Event(), threading.Semaphore(0)


def parked():
    inside.release()
    gate.wait()


threads = [threading.Thread(target=parked) for _ in range(1000)]
for thread in threads:
    thread.start()
for _ in threads:
    inside.acquire()
gate.set()
for thread in threads:
    thread.join()
check("thousand_threads", not any(thread.is_alive() for thread in threads), "one is alive")

caught = []
threading.excepthook = lambda args: caught.append(args.exc_type)
failing = threading.Thread(target=lambda: 1 // 0)
failing.start()
failing.join()
check("excepthook", caught == [ZeroDivisionError], caught)


def recurse(depth):
    return depth if depth == 0 else recurse(depth - 1)


def overflow():
    try:
        recurse(10**6)
    except RecursionError:
        caught.append("recursion")


deep = threading.Thread(target=overflow)
deep.start()
deep.join()
check("recursion_error", caught[-1] == "recursion", caught)

# A daemon thread runs on while the interpreter ends.
threading.Thread(target=lambda: [time.sleep(0.001) for _ in iter(int, 1)], daemon=True).start()
sys.stdout.flush()
verdict()
