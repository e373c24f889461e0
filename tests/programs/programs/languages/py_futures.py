"""concurrent.futures: thread pools with results, exceptions, timeouts, cancelling; and a process
pool."""

import concurrent.futures as futures
import threading
import time

from case import check, verdict


def main():
    with futures.ThreadPoolExecutor(20) as pool:
        total = sum(pool.map(lambda i: (time.sleep(0.002), i)[1], range(300)))
        check("pool_map", total == 44850, total)
        failing = [pool.submit(lambda i=i: 1 // (i % 5)) for i in range(50)]
        failed = sum(isinstance(f.exception(), ZeroDivisionError) for f in failing)
        check("pool_exceptions", failed == 10, failed)
        gate = threading.Event()
        waiting = [pool.submit(gate.wait) for _ in range(20)]
        late = pool.submit(int, "7")
        try:
            late.result(timeout=0.02)
            check("pool_timeout", False, "there was a result")
        except futures.TimeoutError:
            check("pool_timeout", True)
        cancelled = pool.submit(int, "8").cancel()
        gate.set()
        done, pending = futures.wait(waiting)
        check("pool_wait", len(done) == 20 and not pending and cancelled, (len(done), cancelled))
        check("pool_late", late.result() == 7, late)
        ordered = [f.result() for f in futures.as_completed([pool.submit(abs, -i) for i in range(30)])]
        check("as_completed", sorted(ordered) == list(range(30)), ordered)
    with futures.ProcessPoolExecutor(3) as pool:
        values = list(pool.map(pow, range(30), [3] * 30))
        check("process_pool", values == [i**3 for i in range(30)], values)


if __name__ == "__main__":
    main()
    verdict()
