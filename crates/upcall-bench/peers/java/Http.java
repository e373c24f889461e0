import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.Arrays;
import java.util.Locale;

/**
 * A web server with a virtual thread for each connection. The other ends of idle connections are in
 * a process of upcall-workload (client=PATH).
 */
final class Http {
    private static final String BODY = "Hello, world!\n";
    private static final DateTimeFormatter DATE =
            DateTimeFormatter.ofPattern("EEE, dd MMM yyyy HH:mm:ss 'GMT'", Locale.ENGLISH);
    /** Descriptors that are not connections. */
    private static final int OTHERS = 200;
    /** More than what it takes to read how much memory there is. */
    private static final int READING = 256 << 10;

    private Http() {}

    /** Starts the server at any port of the loopback interface. */
    private static int serve() throws IOException {
        ServerSocket listener = new ServerSocket(0, 1024, InetAddress.getByName("127.0.0.1"));
        Thread.startVirtualThread(() -> {
            while (true) {
                try {
                    Socket socket = listener.accept();
                    socket.setTcpNoDelay(true);
                    Thread.startVirtualThread(() -> connection(socket));
                } catch (IOException e) {
                    throw Peer.fail(Peer.FAILED, "the server: %s", e);
                }
            }
        });
        return listener.getLocalPort();
    }

    /** Answers requests without a body to the connection's end. */
    private static void connection(Socket connection) {
        try (Socket socket = connection) {
            InputStream in = socket.getInputStream();
            OutputStream out = socket.getOutputStream();
            byte[] input = new byte[512];
            int filled = 0;
            while (true) {
                if (filled == input.length) {
                    input = Arrays.copyOf(input, 2 * filled);
                }
                int got = in.read(input, filled, input.length - filled);
                if (got < 0) {
                    return;
                }
                filled += got;
                int done = 0;
                StringBuilder output = new StringBuilder();
                int length;
                while ((length = request(input, done, filled)) > 0) {
                    done += length;
                    answer(output);
                }
                if (length < 0) {
                    return;
                }
                System.arraycopy(input, done, input, 0, filled - done);
                filled -= done;
                out.write(output.toString().getBytes(StandardCharsets.ISO_8859_1));
            }
        } catch (IOException e) {
            // The client's end.
        }
    }

    private static void answer(StringBuilder output) {
        output.append("HTTP/1.1 200 OK\r\nDate: ");
        DATE.formatTo(ZonedDateTime.now(ZoneOffset.UTC), output);
        output.append("\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: ")
                .append(BODY.length()).append("\r\n\r\n").append(BODY);
    }

    /** How long the request at begin is: 0 if it is not there to its end, -1 if it is none. */
    private static int request(byte[] bytes, int begin, int end) {
        int line = begin;
        while (true) {
            int next = line;
            while (next < end && bytes[next] != '\n') {
                next++;
            }
            if (next == end) {
                return 0;
            }
            if (next == line || bytes[next - 1] != '\r') {
                return -1;
            }
            if (line == begin ? !isRequestLine(bytes, line, next - 1)
                    : next > line + 1 && !isHeader(bytes, line, next - 1)) {
                return -1;
            }
            if (next == line + 1) {
                return next + 1 - begin;
            }
            line = next + 1;
        }
    }

    private static boolean isRequestLine(byte[] bytes, int begin, int end) {
        String[] words = new String(bytes, begin, end - begin, StandardCharsets.ISO_8859_1).split(" ");
        return words.length == 3 && words[2].startsWith("HTTP/1.");
    }

    private static boolean isHeader(byte[] bytes, int begin, int end) {
        int name = begin;
        while (name < end && isToken(bytes[name])) {
            name++;
        }
        return name > begin && name < end && bytes[name] == ':';
    }

    private static boolean isToken(byte c) {
        return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
                || "!#$%&'*+-.^_`|~".indexOf(c) >= 0;
    }

    static void load() {
        int connections = Peer.number("connections", 64);
        int seconds = Peer.number("seconds", 2);
        try {
            String url = "http://127.0.0.1:" + serve() + "/";
            if (Peer.warmUpTime() > 0) {
                wrk(url, connections, Math.ceilDiv(Peer.warmUpTime(), 1000));
            }
            Peer.figure("requests/s", wrk(url, connections, seconds));
        } catch (IOException | InterruptedException e) {
            throw Peer.fail(Peer.FAILED, "%s", e);
        }
    }

    /** The answers in a second that wrk counts. */
    private static double wrk(String url, int connections, int seconds)
            throws IOException, InterruptedException {
        Process wrk;
        try {
            wrk = new ProcessBuilder("wrk", "-t1", "-c" + connections, "-d" + seconds, url).start();
        } catch (IOException e) {
            throw Peer.fail(Peer.SKIP, "wrk is not installed: %s", e.getMessage());
        }
        String said = new String(wrk.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        double rate = 0;
        for (String line : said.split("\n")) {
            if (line.startsWith("Requests/sec:")) {
                rate = Double.parseDouble(line.substring(line.indexOf(':') + 1).trim());
            }
        }
        if (wrk.waitFor() != 0 || rate <= 0 || said.contains("Socket errors") || said.contains("Non-2xx")) {
            throw Peer.fail(Peer.FAILED, "wrk says: %s", said);
        }
        return rate;
    }

    /** How many descriptors this process may have, after it has asked for count. */
    private static long descriptors(int count) throws IOException, InterruptedException {
        if (descriptors() < count) {
            // Beyond the hard limit, which takes a privilege: prlimit(1) says whether it has worked.
            String self = Long.toString(ProcessHandle.current().pid());
            new ProcessBuilder("prlimit", "--pid", self, "--nofile=" + count + ":" + count)
                    .redirectErrorStream(true).start().waitFor();
        }
        return descriptors();
    }

    /** The same: the virtual machine has asked for all that it may have. */
    private static long descriptors() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/limits"))) {
            if (line.startsWith("Max open files")) {
                return Long.parseLong(line.substring("Max open files".length()).trim().split(" +")[0]);
            }
        }
        throw new IOException("/proc/self/limits: there is no limit of open files");
    }

    static void idle() {
        int count = Peer.number("connections", 10_000);
        try {
            long allowed = descriptors(count + OTHERS);
            if (allowed < count + OTHERS) {
                throw Peer.fail(Peer.SKIP, "RLIMIT_NOFILE allows %d descriptors, too few for %d connections",
                        allowed, count);
            }
            int port = serve();
            // What the first connection needs is there before.
            Client warm = new Client(port, 1);
            long before = Blocked.residentMemory();
            Client others = new Client(port, count);
            // Until memory does not grow any more: all threads wait.
            long bytes = Blocked.residentMemory();
            long last;
            do {
                last = bytes;
                Thread.sleep(200);
                bytes = Blocked.residentMemory();
            } while (bytes > last + READING);
            int tasks = new File("/proc/self/task").list().length;
            others.finish();
            warm.finish();
            Peer.figure("bytes", Math.max(bytes - before, 0) / (double) count);
            Peer.figure("kernel_threads", tasks);
        } catch (IOException | InterruptedException e) {
            throw Peer.fail(Peer.FAILED, "%s", e);
        }
    }

    /** A process that makes connections and keeps them. */
    private static final class Client {
        private final Process process;
        private final BufferedReader said;

        Client(int port, int count) throws IOException {
            process = new ProcessBuilder(Peer.text("client"), "idle_client", "port=" + port, "first=0",
                    "connections=" + count).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            said = process.inputReader();
            says("ready");
        }

        private void says(String word) throws IOException {
            String line = said.readLine();
            if (!word.equals(line)) {
                throw new IOException("the client says " + line);
            }
        }

        /** Has it ask for some pages. */
        void finish() throws IOException {
            process.outputWriter().close();
            says("done");
        }
    }
}
