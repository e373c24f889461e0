package main

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

const batch = 1000

func right(found, expected int) {
	if found != expected {
		fail(1, "the results come to %d and not to %d", found, expected)
	}
}

// nullFork makes goroutines that return what they were given, one at a time.
func nullFork() {
	each(number("operations", 5000), func(operations int) {
		for i := 0; i < operations; i++ {
			var done sync.WaitGroup
			result := 0
			done.Add(1)
			go func() {
				result = i
				done.Done()
			}()
			done.Wait()
			right(result, i)
		}
	})
}

// forkBatch makes a thousand of them and then waits for all.
func forkBatch() {
	batches := number("batches", 5)
	each(batches*batch, func(int) {
		var results [batch]int
		for i := 0; i < batches; i++ {
			var done sync.WaitGroup
			done.Add(batch)
			for i := range results {
				go func() {
					results[i] = i
					done.Done()
				}()
			}
			done.Wait()
			sum := 0
			for i, result := range results {
				sum += result
				results[i] = 0
			}
			right(sum, batch*(batch-1)/2)
		}
	})
}

func fib(n int) int {
	if n < 2 {
		return n
	}
	var done sync.WaitGroup
	one := 0
	done.Add(1)
	go func() {
		one = fib(n - 1)
		done.Done()
	}()
	other := fib(n - 2)
	done.Wait()
	return one + other
}

// whole times one operation, `samples` times after one for warm-up.
func whole(samples int, operation func()) {
	params["samples"] = strconv.Itoa(number("samples", samples))
	each(1, func(int) { operation() })
}

func fibonacci() {
	n := number("n", 30)
	expected, next := 0, 1
	for i := 0; i < n; i++ {
		expected, next = next, expected+next
	}
	whole(1, func() { right(fib(n), expected) })
}

// sum is the sum of the numbers from first to last.
func sum(first, last int) int {
	if first >= last {
		return first
	}
	middle := (first + last) / 2
	var done sync.WaitGroup
	low, high := 0, 0
	done.Add(2)
	go func() {
		low = sum(first, middle)
		done.Done()
	}()
	go func() {
		high = sum(middle+1, last)
		done.Done()
	}()
	done.Wait()
	return low + high
}

func sumtime() {
	n := number("n", 2000)
	whole(3, func() { right(sum(1, n), n*(n+1)/2) })
}

// kibOf is what a file of /proc names in KiB.
func kibOf(path, key string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		fail(1, "%v", err)
	}
	for _, line := range strings.Split(string(text), "\n") {
		if words := strings.Fields(line); len(words) > 1 && words[0] == key {
			if kib, err := strconv.Atoi(words[1]); err == nil {
				return kib
			}
		}
	}
	fail(1, "%s: there is no %s", path, key)
	return 0
}

func residentMemory() int { return 1024 * kibOf("/proc/self/smaps_rollup", "Rss:") }

// blocked makes goroutines that all wait for one channel.
func blocked() {
	count := number("threads", 30000)
	if kib := kibOf("/proc/meminfo", "MemAvailable:"); kib/12 < count {
		fail(exitSkip, "%d goroutines may need 12 KiB each, and %d MiB are available", count, kib/1024)
	}
	gate, all := make(chan struct{}), make(chan struct{})
	var arrived atomic.Int64
	var done sync.WaitGroup
	before := residentMemory()
	begin := now()
	done.Add(count)
	for i := 0; i < count; i++ {
		go func() {
			if arrived.Add(1) == int64(count) {
				close(all)
			}
			<-gate
			done.Done()
		}()
	}
	<-all
	time := now() - begin
	bytes := residentMemory() - before
	for i := 0; i < count; i++ {
		gate <- struct{}{}
	}
	done.Wait()
	figure("ns", float64(time)/float64(count))
	figure("bytes", float64(bytes)/float64(count))
}

// mutex is 64 goroutines that take one lock again and again, for a moment each time.
func mutex() {
	const goroutines = 64
	operations := number("operations", 10000)
	for sample := 0; sample <= number("samples", 5); sample++ {
		var lock sync.Mutex
		var done sync.WaitGroup
		count := 0
		begin := now()
		done.Add(goroutines)
		for i := 0; i < goroutines; i++ {
			go func() {
				defer done.Done()
				for i := 0; i < operations; i++ {
					lock.Lock()
					count++
					lock.Unlock()
					spin(20)
				}
			}()
		}
		done.Wait()
		right(count, goroutines*operations)
		if sample > 0 {
			figure("Mops/s", float64(count)*1000/float64(now()-begin))
		}
	}
}
