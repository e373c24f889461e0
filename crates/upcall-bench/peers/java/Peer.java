import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * The Java peer of upcall-workload: the same workloads, the same command line and the same output,
 * with virtual threads.
 */
final class Peer {
    static final int FAILED = 1;
    static final int USAGE = 2;
    /** Exit status of a workload that this machine cannot run. */
    static final int SKIP = 77;

    /**
     * Milliseconds for which a workload runs before it is measured (warm_up_ms). The others' programs
     * have been compiled; this one is while it runs.
     */
    private static final int WARM_UP = 2000;

    private static final Map<String, String> PARAMS = new HashMap<>();
    private static final Set<String> USED = new HashSet<>();
    private static final StringBuilder OUTPUT = new StringBuilder();

    private static final Map<String, Runnable> PROGRAMS = new TreeMap<>(Map.ofEntries(
            Map.entry("blocked", Blocked::run),
            Map.entry("fib", Fork::fibonacci),
            Map.entry("fork_batch", Fork::batch),
            Map.entry("mutex_64", Sync::mutex),
            Map.entry("null_fork", Fork::nothing),
            Map.entry("pipe_exchange", Sync::pipe),
            Map.entry("semaphore", Sync::semaphore),
            Map.entry("signal_wait", Sync::signalWait),
            Map.entry("sumtime", Fork::sumtime),
            Map.entry("yield", Sync::yields)));

    /** Those that wait for other processes, on a kernel thread: their servers have the virtual ones. */
    private static final Map<String, Runnable> OUTSIDE =
            Map.of("http", Http::load, "idle_connections", Http::idle);

    private Peer() {}

    /** Ends the process at once, whatever other threads do. */
    static RuntimeException fail(int status, String format, Object... arguments) {
        System.err.printf("upcall-peer: " + format + "%n", arguments);
        Runtime.getRuntime().halt(status);
        return new IllegalStateException();
    }

    static String text(String key) {
        USED.add(key);
        return PARAMS.getOrDefault(key, "");
    }

    static int number(String key, int otherwise) {
        String text = text(key);
        if (!PARAMS.containsKey(key)) {
            return otherwise;
        }
        try {
            return Integer.parseUnsignedInt(text);
        } catch (NumberFormatException e) {
            throw fail(USAGE, "%s=%s is not a number", key, text);
        }
    }

    static void figure(String series, double value) {
        OUTPUT.append(series).append(' ').append(value).append('\n');
    }

    static void right(long found, long expected) {
        if (found != expected) {
            throw fail(FAILED, "the threads' results come to %d and not to %d", found, expected);
        }
    }

    static void join(Thread thread) {
        try {
            thread.join();
        } catch (InterruptedException e) {
            throw fail(FAILED, "%s", e);
        }
    }

    static int warmUpTime() {
        return number("warm_up_ms", WARM_UP);
    }

    /** Runs operations for warm-up, once at least. */
    static void warmUp(Runnable operations) {
        long end = System.nanoTime() + warmUpTime() * 1_000_000L;
        do {
            operations.run();
        } while (System.nanoTime() < end);
    }

    /** Times so many operations, samples times after some for warm-up. */
    static void timed(int samples, long count, Runnable operations) {
        warmUp(operations);
        for (int sample = 0; sample < samples; sample++) {
            long begin = System.nanoTime();
            operations.run();
            figure("ns", (double) (System.nanoTime() - begin) / count);
        }
    }

    private static void parse(String[] words) {
        for (int i = 1; i < words.length; i++) {
            int equals = words[i].indexOf('=');
            if (equals < 0) {
                throw fail(USAGE, "expected KEY=VALUE, found %s", words[i]);
            }
            String key = words[i].substring(0, equals);
            if (PARAMS.put(key, words[i].substring(equals + 1)) != null) {
                throw fail(USAGE, "%s is given twice", key);
            }
        }
    }

    public static void main(String[] words) {
        String name = words.length > 0 ? words[0] : "";
        Runnable inside = PROGRAMS.get(name);
        Runnable outside = OUTSIDE.get(name);
        if (inside == null && outside == null) {
            throw fail(USAGE, "expected one of %s, %s", String.join(", ", PROGRAMS.keySet()),
                    String.join(", ", OUTSIDE.keySet()));
        }
        parse(words);
        // It has been told by the command line, before the first virtual thread.
        int parallelism = Integer.getInteger("jdk.virtualThreadScheduler.parallelism", 0);
        if (number("workers", parallelism) != parallelism) {
            throw fail(USAGE, "the scheduler has been told of %d workers", parallelism);
        }
        // Every workload may be told, also one that has none.
        warmUpTime();
        // A thread that ends so is waited for for ever.
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            fail(FAILED, "%s", error);
        });
        if (inside != null) {
            join(Thread.startVirtualThread(inside));
        } else {
            outside.run();
        }
        for (String key : PARAMS.keySet()) {
            if (!USED.contains(key)) {
                throw fail(USAGE, "this workload has no parameter %s", key);
            }
        }
        System.out.print(OUTPUT.append("done\n"));
        System.out.flush();
        if (System.out.checkError()) {
            throw fail(FAILED, "writing the figures");
        }
    }
}
