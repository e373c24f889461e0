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
	ready, release := func(int) {}, func(int) {}
	var block, wake func(round int)
	switch how := text("how", "pipe"); how {
	case "pipe":
		read, write := newPipe()
		block = func(int) { read.Read(make([]byte, 1)) }
		wake = func(int) { write.Write([]byte{1}) }
	case "flock":
		// Taken in turn: the next one is taken before the last one is released.
		var equal, waiter [2]int
		for i := range equal {
			file, err := os.CreateTemp("", "upcall-peer")
			if err != nil {
				fail(1, "%v", err)
			}
			again, err := os.Open(file.Name())
			if err != nil {
				fail(1, "%v", err)
			}
			os.Remove(file.Name())
			equal[i], waiter[i] = int(file.Fd()), int(again.Fd())
			defer runtime.KeepAlive(file)
			defer runtime.KeepAlive(again)
		}
		syscall.Flock(equal[0], syscall.LOCK_EX)
		block = func(round int) { syscall.Flock(waiter[round%2], syscall.LOCK_EX) }
		release = func(round int) { syscall.Flock(waiter[round%2], syscall.LOCK_UN) }
		ready = func(round int) { syscall.Flock(equal[(round+1)%2], syscall.LOCK_EX) }
		wake = func(round int) { syscall.Flock(equal[round%2], syscall.LOCK_UN) }
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
			begun.Store(int64(i + 1))
			block(i)
			after[i] = max(now()-wokenAt.Load(), 1)
			release(i)
			ended.Store(int64(i + 1))
		}
	}()
	go func() {
		defer done.Done()
		for i := range after {
			for begun.Load() <= int64(i) {
				quantum()
			}
			ready(i)
			for until := now() + compute; now() < until; {
				quantum()
			}
			wokenAt.Store(now())
			wake(i)
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
