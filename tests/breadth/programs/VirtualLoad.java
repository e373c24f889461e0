import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

/** Virtual threads: many sleepers, a queue, pinned ones. */
public class VirtualLoad {
    public static void main(String[] arguments) throws Exception {
        LongAdder sum = new LongAdder();
        try (ExecutorService pool = Executors.newVirtualThreadPerTaskExecutor()) {
            for (int i = 0; i < 20000; i++) {
                int n = i;
                pool.submit(() -> { Thread.sleep(n % 50); sum.add(n); return null; });
            }
        }
        System.out.println("sum " + sum);
        SynchronousQueue<Integer> queue = new SynchronousQueue<>();
        Thread producer = Thread.startVirtualThread(() -> {
            try { for (int i = 0; i < 5000; i++) queue.put(i); } catch (InterruptedException e) { throw new RuntimeException(e); }
        });
        long got = 0;
        for (int i = 0; i < 5000; i++) got += queue.take();
        producer.join();
        System.out.println("queue " + got);
        Object monitor = new Object();
        int[] count = {0};
        Thread[] threads = new Thread[200];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = Thread.ofVirtual().start(() -> {
                for (int k = 0; k < 20; k++) synchronized (monitor) { count[0]++; Thread.yield(); }
            });
        }
        for (Thread thread : threads) thread.join();
        System.out.println("pinned " + count[0]);
    }
}
