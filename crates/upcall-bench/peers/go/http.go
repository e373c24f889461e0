package main

import (
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

// residentMemory is what smaps_rollup has, in bytes.
func residentMemory() int {
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		fail(1, "%v", err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if rest, found := strings.CutPrefix(line, "Rss:"); found {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(rest, "kB")))
			if err == nil {
				return kib << 10
			}
		}
	}
	fail(1, "smaps_rollup has no Rss")
	return 0
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

func idleConnections() {
	count := number("connections", 10000)
	limit := syscall.Rlimit{}
	syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	if need := uint64(2*count + 200); limit.Cur < need {
		limit.Cur, limit.Max = need, max(limit.Max, need)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			fail(exitSkip, "%d descriptors are more than RLIMIT_NOFILE allows", need)
		}
	}
	_, text, _ := net.SplitHostPort(serve())
	port, _ := strconv.Atoi(text)
	clients := make([]int, 0, count+1)
	before := 0
	for number := 0; number <= count; number++ {
		clients = append(clients, dial(port, number/20000))
		if number == 0 {
			ask(clients[0])
			before = residentMemory()
		}
	}
	ask(clients[count])
	bytes, last := residentMemory(), 0
	for bytes > last {
		last = bytes
		time.Sleep(200 * time.Millisecond)
		bytes = residentMemory()
	}
	tasks, _ := os.ReadDir("/proc/self/task")
	for number := 0; number <= count; number += 97 {
		ask(clients[number])
	}
	figure("bytes", float64(max(bytes-before, 0))/float64(count))
	figure("kernel_threads", float64(len(tasks)))
}
