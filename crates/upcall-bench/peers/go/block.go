package main

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
)

func nanosleep(ns int) {
	time := syscall.NsecToTimespec(int64(ns))
	syscall.Nanosleep(&time, nil)
}

func blockToCompute() {
	samples, warmUp := number("samples", 40), number("warm_up", 4)
	rounds := samples + warmUp
	block, hold := number("block_us", 5000)*1000, int64(number("hold_us", 200)*1000)
	var write *os.File
	var stopped func(round int) bool
	switch how := text("how", "nanosleep"); how {
	case "nanosleep", "nanosleep_raw":
		stopped = func(int) bool { nanosleep(block); return true }
	case "pipe":
		read, end := newPipe()
		write = end
		stopped = func(int) bool { n, _ := read.Read(make([]byte, 1)); return n == 1 }
	case "uffd":
		stopped = faulting(rounds).touch
	case "file":
		file := cold(text("path", ""), rounds)
		stopped = func(round int) bool {
			before := majorFaults()
			return file.touch(round) && majorFaults() > before
		}
	default:
		fail(2, "how=%s is not a way to block", how)
	}
	var blockedAt, round atomic.Int64
	var stop atomic.Bool
	var done sync.WaitGroup
	after := make([]atomic.Int64, rounds)
	compute := func() {
		defer done.Done()
		wakeAt := int64(0)
		for !stop.Load() {
			if since := blockedAt.Load(); since != 0 {
				at, index := now(), round.Load()
				if blockedAt.CompareAndSwap(since, 0) {
					after[index].Store(at - since)
					wakeAt = at + hold
				}
			}
			for i := 0; i < 20 && blockedAt.Load() == 0; i++ {
				spin(20)
			}
			if write != nil && wakeAt != 0 && now() >= wakeAt {
				wakeAt = 0
				write.Write([]byte{1})
			}
			runtime.Gosched()
		}
	}
	for i := number("computing", 1); i > 0; i-- {
		done.Add(1)
		go compute()
	}
	counted := []int{}
	blocked := make(chan struct{})
	go func() {
		defer close(blocked)
		for i := 0; i < rounds; i++ {
			round.Store(int64(i))
			blockedAt.Store(now())
			if stopped(i) && i >= warmUp {
				counted = append(counted, i)
			}
			for blockedAt.Load() != 0 {
				runtime.Gosched()
			}
		}
	}()
	<-blocked
	stop.Store(true)
	done.Wait()
	if len(counted) == 0 {
		fail(exitSkip, "no touch was a major fault: this file system keeps its pages in memory")
	}
	for _, i := range counted {
		figure("ns", float64(after[i].Load()))
	}
}

func blockers() {
	blocking, computing := number("blockers", 8), number("computing", 2)
	block := number("block_us", 5000) * 1000
	warmUp, duration := number("warm_up_ms", 30)*1000000, number("duration_ms", 150)*1000000
	var next atomic.Int64
	var work, blocks atomic.Int64
	var stop atomic.Bool
	var done sync.WaitGroup
	stopped := func() bool { nanosleep(block); return true }
	if text("how", "nanosleep") == "uffd" {
		region := faulting(2 * (1 + blocking) * ((warmUp+duration)/5000000 + 4))
		stopped = func() bool { return region.touch(int(next.Add(1) - 1)) }
	}
	done.Add(computing + blocking)
	for i := 0; i < computing; i++ {
		go func() {
			defer done.Done()
			for !stop.Load() {
				spin(100000)
				work.Add(1)
				runtime.Gosched()
			}
		}()
	}
	for i := 0; i < blocking; i++ {
		go func() {
			defer done.Done()
			for !stop.Load() && stopped() {
				blocks.Add(1)
			}
		}()
	}
	nanosleep(warmUp)
	begin, workBefore, blocksBefore := now(), work.Load(), blocks.Load()
	nanosleep(duration)
	seconds := float64(now()-begin) / 1e9
	figure("work", float64(work.Load()-workBefore)/seconds)
	figure("blocks", float64(blocks.Load()-blocksBefore)/seconds)
	stop.Store(true)
	done.Wait()
}
