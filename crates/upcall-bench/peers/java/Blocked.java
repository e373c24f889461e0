import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;

/** As many threads as there may be, all of which wait for one semaphore. */
final class Blocked {
    private Blocked() {}

    private static final int SOME = 30_000;

    /**
     * The first threads have the program compiled. All are started after them, in memory that may
     * have been used, which tells little of how much a few of them take.
     */
    static void run() {
        int count = Peer.number("threads", 30000);
        long available = bytesOf("/proc/meminfo", "MemAvailable:");
        if (available / (12 << 10) < count) {
            throw Peer.fail(Peer.SKIP, "%d threads may need 12 KiB each, and %d MiB are available",
                    count, available >> 20);
        }
        Peer.join(Thread.startVirtualThread(() -> {}));
        long before = residentMemory();
        Reached first = once(Math.min(count, SOME));
        Reached second = once(count);
        long bytes = (count > SOME ? second : first).memory - before;
        Peer.figure("ns", (double) second.nanoseconds / count);
        Peer.figure("bytes", (double) bytes / count);
    }

    /** How long it took until all threads wait, and the resident memory then. */
    private record Reached(long nanoseconds, long memory) {}

    private static Reached once(int count) {
        Semaphore gate = new Semaphore(0);
        Semaphore all = new Semaphore(0);
        AtomicInteger arrived = new AtomicInteger();
        Thread[] threads = new Thread[count];
        long begin = System.nanoTime();
        for (int i = 0; i < count; i++) {
            threads[i] = Thread.startVirtualThread(() -> {
                if (arrived.incrementAndGet() == count) {
                    all.release();
                }
                gate.acquireUninterruptibly();
            });
        }
        all.acquireUninterruptibly();
        long time = System.nanoTime() - begin;
        long memory = residentMemory();
        gate.release(count);
        for (Thread thread : threads) {
            Peer.join(thread);
        }
        return new Reached(time, memory);
    }

    /** Bytes of this process that are in memory. */
    static long residentMemory() {
        return bytesOf("/proc/self/smaps_rollup", "Rss:");
    }

    /** The bytes that a file of /proc names in KiB. */
    private static long bytesOf(String path, String key) {
        try {
            for (String line : Files.readAllLines(Path.of(path))) {
                if (line.startsWith(key)) {
                    String[] words = line.substring(key.length()).trim().split(" ");
                    return 1024 * Long.parseLong(words[0]);
                }
            }
        } catch (IOException e) {
            throw Peer.fail(Peer.FAILED, "%s", e);
        }
        throw Peer.fail(Peer.FAILED, "%s: there is no %s", path, key);
    }
}
