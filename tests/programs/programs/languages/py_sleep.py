"""time.sleep in many threads beside threads that compute: nobody wakes early, everybody wakes."""

import threading
import time

from case import check, verdict

early, woke, stop = [], [], threading.Event()


def nap(number):
    for _ in range(3):
        length = 0.001 * (number % 30 + 1)
        before = time.monotonic()
        time.sleep(length)
        if time.monotonic() - before < length:
            early.append(number)
    woke.append(number)


def compute():
    while not stop.is_set():
        sum(range(1000))


busy = [threading.Thread(target=compute) for _ in range(2)]
threads = [threading.Thread(target=nap, args=(i,)) for i in range(100)]
for thread in busy + threads:
    thread.start()
for thread in threads:
    thread.join()
stop.set()
for thread in busy:
    thread.join()
check("not_early", not early, early)
check("all_woke", sorted(woke) == list(range(100)), len(woke))
verdict()
