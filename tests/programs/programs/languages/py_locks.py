"""threading: Lock, RLock, Condition, Event, Semaphore, Barrier, Timer, with their timeouts."""

import threading
import time

from case import check, verdict


def run(count, body):
    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


lock, counter = threading.Lock(), 0


def add(_):
    global counter
    for _ in range(500):
        with lock:
            seen = counter
            if seen % 97 == 0:
                time.sleep(0)
            counter = seen + 1


run(20, add)
check("lock", counter == 10000, counter)

with lock:
    before = time.monotonic()
    got = lock.acquire(timeout=0.02)
    check("lock_timeout", not got and time.monotonic() - before >= 0.02, got)

rlock, results = threading.RLock(), []
rlock.acquire()
rlock.acquire()
run(1, lambda _: results.append(rlock.acquire(blocking=False)))
rlock.release()
run(1, lambda _: results.append(rlock.acquire(blocking=False)))
rlock.release()
run(1, lambda _: results.append(rlock.acquire(blocking=False)))
check("rlock", results == [False, False, True], results)

condition, items, taken = threading.Condition(), [], []


def consume(_):
    with condition:
        condition.wait_for(lambda: items)
        taken.append(items.pop())


def produce():
    for item in range(30):
        with condition:
            items.append(item)
            condition.notify()


producer = threading.Timer(0.01, produce)
producer.start()
run(30, consume)
producer.join()
check("condition", sorted(taken) == list(range(30)), taken)
with condition:
    check("condition_timeout", not condition.wait(0.02), "it was notified")

event, passed = threading.Event(), []
timer = threading.Timer(0.02, event.set)
timer.start()
run(30, lambda i: passed.append(event.wait(60)))
check("event", passed == [True] * 30, passed)
check("event_timeout", threading.Event().wait(0.02) is False, "it was set")

semaphore, inside, most = threading.BoundedSemaphore(3), 0, 0


def enter(_):
    global inside, most
    for _ in range(20):
        with semaphore:
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.0002)
            with lock:
                inside -= 1


run(12, enter)
check("semaphore", 1 <= most <= 3 and inside == 0, (most, inside))

barrier, order = threading.Barrier(8), []


def meet(i):
    for turn in range(30):
        order.append(turn)
        barrier.wait(60)


run(8, meet)
check("barrier", order == sorted(order), "a thread was ahead")
verdict()
