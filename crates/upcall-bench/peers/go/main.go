// The Go peer of upcall-workload: the same workloads, the same command line and the same
// output, written as a Go program would be: goroutines, channels, sync, os.Pipe.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Exit status of a workload that this machine cannot run.
const exitSkip = 77

var (
	params = map[string]string{}
	start  = time.Now()
	output strings.Builder
)

func now() int64 { return int64(time.Since(start)) }

func number(key string, otherwise int) int {
	text, given := params[key]
	if !given {
		return otherwise
	}
	value, err := strconv.Atoi(text)
	if err != nil {
		fail(2, "%s=%s is not a number", key, text)
	}
	return value
}

func text(key, otherwise string) string {
	if value, given := params[key]; given {
		return value
	}
	return otherwise
}

func figure(series string, value float64) {
	fmt.Fprintf(&output, "%s %v\n", series, value)
}

func fail(status int, format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, "upcall-peer: "+format+"\n", arguments...)
	os.Exit(status)
}

// spin does fixed work that the compiler must keep.
//
//go:noinline
func spin(iterations int) int {
	sum := 0
	for i := 0; i < iterations; i++ {
		sum += i ^ sum
	}
	return sum
}

var workloads = map[string]func(){
	"block_to_compute": blockToCompute,
	"blocked":          blocked,
	"blockers":         blockers,
	"create_join":      createJoin,
	"fib":              fibonacci,
	"fork_batch":       forkBatch,
	"http":             httpServer,
	"idle_client":      idleClient,
	"idle_connections": idleConnections,
	"mutex_64":         mutex,
	"null_fork":        nullFork,
	"pair_barrier":     func() { pair(&barrier{}, 5000) },
	"pair_spin":        func() { pair(&spinLock{}, 250000) },
	"pair_ticket":      func() { pair(&ticketLock{}, 250000) },
	"pipe_exchange":    pipeExchange,
	"reactivity":       reactivity,
	"semaphore":        semaphore,
	"signal_wait":      signalWait,
	"sumtime":          sumtime,
	"unblock_to_run":   unblockToRun,
	"yield":            yield,
}

func main() {
	if len(os.Args) < 2 || workloads[os.Args[1]] == nil {
		names := []string{}
		for name := range workloads {
			names = append(names, name)
		}
		sort.Strings(names)
		fail(2, "expected one of %s", strings.Join(names, ", "))
	}
	for _, word := range os.Args[2:] {
		key, value, found := strings.Cut(word, "=")
		if !found {
			fail(2, "expected KEY=VALUE, found %q", word)
		}
		params[key] = value
	}
	runtime.GOMAXPROCS(number("workers", 1))
	workloads[os.Args[1]]()
	fmt.Print(output.String(), "done\n")
}
