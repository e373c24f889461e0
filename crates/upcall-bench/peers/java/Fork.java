/** Programs that make threads and wait for their results. */
final class Fork {
    private static final int BATCH = 1000;

    private Fork() {}

    /** Threads that return what they were given, one at a time. */
    static void nothing() {
        int operations = Peer.number("operations", 5000);
        Peer.timed(Peer.number("samples", 5), operations, () -> {
            for (int i = 0; i < operations; i++) {
                int given = i;
                int[] result = {-1};
                Peer.join(Thread.startVirtualThread(() -> result[0] = given));
                Peer.right(result[0], i);
            }
        });
    }

    /** A thousand of them, all started, then joined. */
    static void batch() {
        int batches = Peer.number("batches", 5);
        Peer.timed(Peer.number("samples", 5), batches * BATCH, () -> {
            for (int i = 0; i < batches; i++) {
                Thread[] threads = new Thread[BATCH];
                int[] results = new int[BATCH];
                for (int index = 0; index < BATCH; index++) {
                    int given = index;
                    threads[index] = Thread.startVirtualThread(() -> results[given] = given);
                }
                long sum = 0;
                for (int index = 0; index < BATCH; index++) {
                    Peer.join(threads[index]);
                    sum += results[index];
                }
                Peer.right(sum, BATCH * (BATCH - 1) / 2);
            }
        });
    }

    private static long fib(int n) {
        if (n < 2) {
            return n;
        }
        long[] one = new long[1];
        Thread thread = Thread.startVirtualThread(() -> one[0] = fib(n - 1));
        long other = fib(n - 2);
        Peer.join(thread);
        return one[0] + other;
    }

    static void fibonacci() {
        int n = Peer.number("n", 30);
        long expected = 0;
        long next = 1;
        for (int i = 0; i < n; i++) {
            long sum = expected + next;
            expected = next;
            next = sum;
        }
        long number = expected;
        Peer.timed(Peer.number("samples", 1), 1, () -> Peer.right(fib(n), number));
    }

    /** The sum of the numbers from first to last. */
    private static long sum(long first, long last) {
        if (first >= last) {
            return first;
        }
        long middle = (first + last) / 2;
        long[] results = new long[2];
        Thread low = Thread.startVirtualThread(() -> results[0] = sum(first, middle));
        Thread high = Thread.startVirtualThread(() -> results[1] = sum(middle + 1, last));
        Peer.join(low);
        Peer.join(high);
        return results[0] + results[1];
    }

    static void sumtime() {
        long n = Peer.number("n", 2000);
        Peer.timed(Peer.number("samples", 3), 1, () -> {
            long[] result = new long[1];
            Peer.join(Thread.startVirtualThread(() -> result[0] = sum(1, n)));
            Peer.right(result[0], n * (n + 1) / 2);
        });
    }
}
