"""multiprocessing by fork and by spawn: pools, queues, pipes, shared values, locks, events."""

import multiprocessing
import os

from case import check, verdict


def square(x):
    return x * x


def produce(queue, count):
    for i in range(count):
        queue.put((os.getpid(), i))


def add(value, lock, turns):
    for _ in range(turns):
        with lock:
            value.value += 1


def answer(pipe):
    while (item := pipe.recv()) is not None:
        pipe.send(item[::-1])


def wait_for(event, value):
    value.value = 1 if event.wait(60) else 2


def main():
    context = multiprocessing.get_context("fork")
    with context.Pool(3) as pool:
        check("pool", pool.map(square, range(200)) == [i * i for i in range(200)])
        check("pool_async", sum(pool.imap_unordered(square, range(50), 7)) == 40425)

    queue = context.Queue()
    children = [context.Process(target=produce, args=(queue, 200)) for _ in range(3)]
    for child in children:
        child.start()
    items = [queue.get() for _ in range(600)]
    for child in children:
        child.join()
    codes = [child.exitcode for child in children]
    ordered = all([i for pid, i in items if pid == child.pid] == list(range(200)) for child in children)
    check("queue", ordered and codes == [0, 0, 0], codes)

    value, lock = context.Value("i", 0, lock=False), context.Lock()
    children = [context.Process(target=add, args=(value, lock, 500)) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    check("shared_value", value.value == 2000, value.value)

    here, there = context.Pipe()
    child = context.Process(target=answer, args=(there,))
    child.start()
    answers = []
    for i in range(200):
        here.send(f"message {i}")
        answers.append(here.recv())
    here.send(None)
    child.join()
    check("pipe", answers == [f"message {i}"[::-1] for i in range(200)])

    event, value = context.Event(), context.Value("i", 0)
    child = context.Process(target=wait_for, args=(event, value))
    child.start()
    event.set()
    child.join()
    check("event", value.value == 1, value.value)

    child = context.Process(target=os._exit, args=(9,))
    child.start()
    child.join()
    check("exit_code", child.exitcode == 9, child.exitcode)
    sleeper = context.Process(target=wait_for, args=(context.Event(), value))
    sleeper.start()
    sleeper.terminate()
    sleeper.join()
    check("terminate", sleeper.exitcode == -15, sleeper.exitcode)

    with multiprocessing.get_context("spawn").Pool(2) as pool:
        check("spawn", pool.map(square, range(10)) == [i * i for i in range(10)])


if __name__ == "__main__":
    main()
    verdict()
