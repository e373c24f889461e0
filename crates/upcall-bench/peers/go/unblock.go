package main

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

// unblockToRun: a waiting goroutine blocks; an equal that keeps the processor busy wakes it.
func unblockToRun() {
	// A sample may take two time slices of 10 ms: a few of them say all.
	samples, warmUp := min(number("samples", 500), 40), min(number("warm_up", 20), 4)
	rounds := samples + warmUp
	points := text("equals", "points") == "points"
	compute := int64(number("compute_us", 50) * 1000)
	handOver, takeOver := func() {}, func() {}
	var block, wake func()
	switch how := text("how", "pipe"); how {
	case "pipe":
		read, write := newPipe()
		block = func() { read.Read(make([]byte, 1)) }
		wake = func() { write.Write([]byte{1}) }
	case "flock":
		file, err := os.CreateTemp("", "upcall-peer")
		if err != nil {
			fail(1, "%v", err)
		}
		again, err := os.Open(file.Name())
		if err != nil {
			fail(1, "%v", err)
		}
		os.Remove(file.Name())
		equal, waiter := int(file.Fd()), int(again.Fd())
		released, taken := make(chan struct{}), make(chan struct{})
		block = func() { syscall.Flock(waiter, syscall.LOCK_EX) }
		wake = func() { syscall.Flock(equal, syscall.LOCK_UN) }
		handOver = func() { syscall.Flock(waiter, syscall.LOCK_UN); released <- struct{}{}; <-taken }
		takeOver = func() { <-released; syscall.Flock(equal, syscall.LOCK_EX); taken <- struct{}{} }
		defer runtime.KeepAlive(file)
		defer runtime.KeepAlive(again)
	default:
		fail(2, "how=%s is not a way to block", how)
	}
	quantum := func() {
		spin(400)
		if points {
			runtime.Gosched()
		}
	}
	var begun, ended, wokenAt atomic.Int64
	var done sync.WaitGroup
	after := make([]int64, rounds)
	done.Add(2)
	go func() {
		defer done.Done()
		for i := range after {
			handOver()
			begun.Store(int64(i + 1))
			block()
			after[i] = max(now()-wokenAt.Load(), 1)
			ended.Store(int64(i + 1))
		}
	}()
	go func() {
		defer done.Done()
		for i := range after {
			takeOver()
			for begun.Load() <= int64(i) {
				quantum()
			}
			for until := now() + compute; now() < until; {
				quantum()
			}
			wokenAt.Store(now())
			wake()
			for ended.Load() <= int64(i) {
				quantum()
			}
		}
	}()
	done.Wait()
	for _, ns := range after[warmUp:] {
		figure("ns", float64(ns))
	}
}
