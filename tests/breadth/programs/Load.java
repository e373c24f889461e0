import java.io.*;
import java.net.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.concurrent.locks.*;
import java.util.stream.*;

/** Threads, locks, streams, sockets, garbage, processes and interrupts. Prints what must not depend on the order. */
public class Load {
    static volatile Object sink;

    public static void main(String[] arguments) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8);
        List<Future<Long>> parts = new ArrayList<>();
        for (int part = 0; part < 16; part++) {
            int seed = part;
            parts.add(pool.submit(() -> {
                Map<Integer, byte[]> kept = new HashMap<>();
                Random random = new Random(seed);
                long sum = 0;
                for (int i = 0; i < 20000; i++) {
                    byte[] bytes = new byte[random.nextInt(4096)];
                    kept.put(i % 500, bytes);
                    sum += bytes.length;
                    if (i % 1000 == 0) Thread.yield();
                }
                return sum;
            }));
        }
        long total = 0;
        for (Future<Long> part : parts) total += part.get();
        System.out.println("garbage " + total);

        System.out.println("parallel " + IntStream.range(0, 3_000_000).parallel().mapToLong(i -> i ^ (i >> 3)).sum());

        ReentrantLock lock = new ReentrantLock();
        Condition turn = lock.newCondition();
        int[] state = {0};
        Thread[] ring = new Thread[6];
        for (int i = 0; i < ring.length; i++) {
            int me = i;
            ring[i] = new Thread(() -> {
                for (int round = 0; round < 500; round++) {
                    lock.lock();
                    try {
                        while (state[0] % ring.length != me) turn.await();
                        state[0]++;
                        turn.signalAll();
                    } catch (InterruptedException e) {
                        throw new RuntimeException(e);
                    } finally {
                        lock.unlock();
                    }
                }
            });
            ring[i].start();
        }
        for (Thread thread : ring) thread.join();
        System.out.println("ring " + state[0]);

        try (ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            Thread accepting = new Thread(() -> {
                try {
                    for (int i = 0; i < 50; i++) {
                        Socket socket = server.accept();
                        pool.submit(() -> {
                            try (socket) { socket.getInputStream().transferTo(socket.getOutputStream()); }
                            return null;
                        });
                    }
                } catch (IOException e) {
                    throw new UncheckedIOException(e);
                }
            });
            accepting.start();
            long echoed = 0;
            for (int i = 0; i < 50; i++) {
                try (Socket socket = new Socket(server.getInetAddress(), server.getLocalPort())) {
                    socket.getOutputStream().write(new byte[10000]);
                    socket.shutdownOutput();
                    echoed += socket.getInputStream().readAllBytes().length;
                }
            }
            accepting.join();
            System.out.println("echoed " + echoed);
        }

        Thread sleeper = new Thread(() -> {
            try { Thread.sleep(100_000); System.out.println("slept"); } catch (InterruptedException e) { System.out.println("interrupted"); }
        });
        sleeper.start();
        sleeper.interrupt();
        sleeper.join();

        int processes = 0;
        for (int i = 0; i < 10; i++) {
            Process process = new ProcessBuilder("/bin/sh", "-c", "echo $((40 + 2))").start();
            processes += Integer.parseInt(new String(process.getInputStream().readAllBytes()).trim());
            process.waitFor();
        }
        System.out.println("processes " + processes);

        int traces = 0;
        for (int i = 0; i < 50; i++) traces += Thread.getAllStackTraces().isEmpty() ? 0 : 1;
        System.out.println("traces " + traces);
        int caught = 0;
        for (int i = 0; i < 2000; i++) {
            try { sink = (i % 2 == 0 ? null : "x").toString(); } catch (NullPointerException e) { caught++; }
        }
        try { deep(0); } catch (StackOverflowError e) { System.out.println("overflow"); }
        System.out.println("null " + caught);
        System.gc();
        pool.shutdown();
        System.out.println(pool.awaitTermination(60, TimeUnit.SECONDS));
    }

    static int deep(int n) { return deep(n + 1) + 1; }
}
