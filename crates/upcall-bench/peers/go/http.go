package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// serve starts a web server as one writes it with net/http: a goroutine for each connection.
func serve() string {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		fail(1, "listening: %v", err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, "Hello, world!\n")
	})
	go http.Serve(listener, handler)
	return listener.Addr().String()
}

func httpServer() {
	wrk, err := exec.LookPath("wrk")
	if err != nil {
		fail(exitSkip, "wrk is not installed")
	}
	connections, seconds := number("connections", 64), number("seconds", 2)
	said, err := exec.Command(wrk, "-t1", fmt.Sprintf("-c%d", connections), fmt.Sprintf("-d%d", seconds),
		"http://"+serve()+"/").Output()
	rate := 0.0
	for _, line := range strings.Split(string(said), "\n") {
		if text, found := strings.CutPrefix(line, "Requests/sec:"); found {
			rate, _ = strconv.ParseFloat(strings.TrimSpace(text), 64)
		}
		if strings.Contains(line, "Socket errors") || strings.Contains(line, "Non-2xx") {
			fail(1, "wrk says: %s", said)
		}
	}
	if err != nil || rate <= 0 {
		fail(1, "wrk: %v: %s", err, said)
	}
	figure("requests/s", rate)
}

// dial connects by plain descriptors, so that the other end costs this process no memory.
func dial(port, number int) int {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		err = syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 1, byte(1 + number)}})
	}
	if err == nil {
		err = syscall.Connect(socket, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		fail(1, "connecting: %v", err)
	}
	return socket
}

func ask(socket int) {
	answer := make([]byte, 512)
	_, err := syscall.Write(socket, []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	n := 0
	if err == nil {
		n, err = syscall.Read(socket, answer)
	}
	if err != nil || !strings.HasPrefix(string(answer[:max(n, 0)]), "HTTP/1.1 200 ") {
		fail(1, "a request: %v", err)
	}
}

const others = 200

// queue is how many connections may wait to be accepted.
const queue = 40

// descriptors is how many this process may have, after it has asked for count.
func descriptors(count uint64) uint64 {
	limit := syscall.Rlimit{}
	syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	before, most := limit.Cur, limit.Max
	if before >= count {
		return before
	}
	for _, wanted := range []uint64{max(most, count), most} {
		limit.Cur, limit.Max = min(count, wanted), wanted
		if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
			return limit.Cur
		}
	}
	return before
}

// client is a process that makes connections and keeps them.
type client struct {
	process *exec.Cmd
	input   io.WriteCloser
	said    *bufio.Reader
}

func startClient(port string, first, count int) client {
	own, _ := os.Executable()
	c := client{process: exec.Command(own, "idle_client", "port="+port,
		fmt.Sprintf("first=%d", first), fmt.Sprintf("connections=%d", count))}
	c.input, _ = c.process.StdinPipe()
	output, _ := c.process.StdoutPipe()
	c.said = bufio.NewReader(output)
	if err := c.process.Start(); err != nil {
		fail(1, "the client: %v", err)
	}
	c.says("ready")
	return c
}

func (c client) says(word string) {
	if line, err := c.said.ReadString('\n'); strings.TrimSpace(line) != word {
		fail(1, "the client says %q: %v", line, err)
	}
}

func (c client) finish() {
	c.input.Close()
	c.says("done")
	c.process.Wait()
}

func idleClient() {
	port, first, count := number("port", 0), number("first", 0), number("connections", 10000)
	descriptors(uint64(count) + others)
	all := make([]int, 0, count)
	for number := first; number < first+count; number++ {
		all = append(all, dial(port, number/20000))
		if len(all)%queue == 0 {
			// All are accepted in their order, so those before this one have been.
			last := dial(port, number/20000)
			ask(last)
			syscall.Close(last)
		}
	}
	ask(all[count-1])
	fmt.Println("ready")
	os.Stdin.Read(make([]byte, 1))
	for number := 0; number < count; number += 97 {
		ask(all[number])
	}
}

func idleConnections() {
	count := number("connections", 10000)
	if allowed := descriptors(uint64(count) + others); allowed < uint64(count)+others {
		fail(exitSkip, "RLIMIT_NOFILE allows %d descriptors, too few for %d connections", allowed, count)
	}
	_, port, _ := net.SplitHostPort(serve())
	warm := startClient(port, 0, 1)
	before := residentMemory()
	each := int(descriptors(0)) - others
	clients := []client{}
	for first := 0; first < count; first += each {
		clients = append(clients, startClient(port, first, min(each, count-first)))
	}
	bytes, last := residentMemory(), 0
	for bytes > last {
		last = bytes
		time.Sleep(200 * time.Millisecond)
		bytes = residentMemory()
	}
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, c := range clients {
		c.finish()
	}
	warm.finish()
	figure("bytes", float64(max(bytes-before, 0))/float64(count))
	figure("kernel_threads", float64(len(tasks)))
}
