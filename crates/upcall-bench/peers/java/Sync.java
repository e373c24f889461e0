import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Pipe;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.WritableByteChannel;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/** Threads that wait for one another. */
final class Sync {
    private Sync() {}

    private static void both(Runnable one, Runnable other) {
        Thread first = Thread.startVirtualThread(one);
        Thread second = Thread.startVirtualThread(other);
        Peer.join(first);
        Peer.join(second);
    }

    static void semaphore() {
        int operations = Peer.number("operations", 10_000);
        Peer.timed(Peer.number("samples", 5), operations, () -> {
            Semaphore ping = new Semaphore(0);
            Semaphore pong = new Semaphore(0);
            both(() -> {
                for (int i = 0; i < operations; i++) {
                    ping.release();
                    pong.acquireUninterruptibly();
                }
            }, () -> {
                for (int i = 0; i < operations; i++) {
                    ping.acquireUninterruptibly();
                    pong.release();
                }
            });
        });
    }

    /** The lock guards whose turn it is. */
    private static final class Exchange {
        private final ReentrantLock lock = new ReentrantLock();
        private final Condition[] conditions = {lock.newCondition(), lock.newCondition()};
        private int turn;

        void takeTurns(int me, int operations) {
            lock.lock();
            try {
                for (int i = 0; i < operations; i++) {
                    while (turn != me) {
                        conditions[me].awaitUninterruptibly();
                    }
                    turn = 1 - me;
                    conditions[1 - me].signal();
                }
            } finally {
                lock.unlock();
            }
        }
    }

    static void signalWait() {
        int operations = Peer.number("operations", 10_000);
        Peer.timed(Peer.number("samples", 5), operations, () -> {
            Exchange exchange = new Exchange();
            both(() -> exchange.takeTurns(0, operations), () -> exchange.takeTurns(1, operations));
        });
    }

    static void yields() {
        int operations = Peer.number("operations", 50_000);
        Runnable body = () -> {
            for (int i = 0; i < operations; i++) {
                Thread.yield();
            }
        };
        Peer.timed(Peer.number("samples", 5), 2L * operations, () -> both(body, body));
    }

    /** Turns of a loop whose result the compiler must compute. */
    private static long spin(long sum, int iterations) {
        for (int i = 0; i < iterations; i++) {
            sum += i ^ sum;
        }
        return sum;
    }

    private static final int THREADS = 64;

    /** 64 threads that take one lock again and again, for a moment each time. */
    private static void takeInTurns(int operations) {
        ReentrantLock lock = new ReentrantLock();
        int[] count = {0};
        long[] sums = new long[THREADS];
        Thread[] threads = new Thread[THREADS];
        for (int i = 0; i < THREADS; i++) {
            int me = i;
            threads[i] = Thread.startVirtualThread(() -> {
                long sum = 0;
                for (int j = 0; j < operations; j++) {
                    lock.lock();
                    try {
                        count[0]++;
                    } finally {
                        lock.unlock();
                    }
                    sum = spin(sum, 20);
                }
                sums[me] = sum;
            });
        }
        for (Thread thread : threads) {
            Peer.join(thread);
        }
        Peer.right(count[0], (long) THREADS * operations);
        Peer.right(sums[0], sums[THREADS - 1]);
    }

    static void mutex() {
        int operations = Peer.number("operations", 10_000);
        int samples = Peer.number("samples", 5);
        Peer.warmUp(() -> takeInTurns(operations));
        for (int sample = 0; sample < samples; sample++) {
            long begin = System.nanoTime();
            takeInTurns(operations);
            double time = System.nanoTime() - begin;
            Peer.figure("Mops/s", THREADS * operations * 1000.0 / time);
        }
    }

    private static void write(WritableByteChannel channel, ByteBuffer one) throws IOException {
        one.clear();
        if (channel.write(one) != 1) {
            throw new IOException("a byte was not written");
        }
    }

    private static void read(ReadableByteChannel channel, ByteBuffer one) throws IOException {
        one.clear();
        if (channel.read(one) != 1) {
            throw new IOException("a pipe has ended");
        }
    }

    static void pipe() {
        int operations = Peer.number("operations", 5000);
        Peer.timed(Peer.number("samples", 5), operations, () -> {
            try {
                Pipe there = Pipe.open();
                Pipe back = Pipe.open();
                exchange(there, back, operations);
                for (Pipe pipe : new Pipe[] {there, back}) {
                    pipe.sink().close();
                    pipe.source().close();
                }
            } catch (IOException e) {
                throw Peer.fail(Peer.FAILED, "%s", e);
            }
        });
    }

    private static void exchange(Pipe there, Pipe back, int operations) {
        both(() -> {
            ByteBuffer one = ByteBuffer.allocateDirect(1);
            try {
                for (int i = 0; i < operations; i++) {
                    write(there.sink(), one);
                    read(back.source(), one);
                }
            } catch (IOException e) {
                throw Peer.fail(Peer.FAILED, "%s", e);
            }
        }, () -> {
            ByteBuffer one = ByteBuffer.allocateDirect(1);
            try {
                for (int i = 0; i < operations; i++) {
                    read(there.source(), one);
                    write(back.sink(), one);
                }
            } catch (IOException e) {
                throw Peer.fail(Peer.FAILED, "%s", e);
            }
        });
    }
}
