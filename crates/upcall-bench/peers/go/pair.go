package main

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

type program interface{ round() }

type spinLock struct{ held atomic.Bool }

func (l *spinLock) round() {
	for !l.held.CompareAndSwap(false, true) {
	}
	spin(100)
	l.held.Store(false)
	spin(400)
}

type ticketLock struct{ next, serving atomic.Int64 }

func (l *ticketLock) round() {
	ticket := l.next.Add(1) - 1
	for l.serving.Load() != ticket {
	}
	spin(100)
	l.serving.Store(ticket + 1)
	spin(400)
}

type barrier struct{ arrived, generation atomic.Int64 }

func (b *barrier) round() {
	spin(40000)
	generation := b.generation.Load()
	if b.arrived.Add(1) == 2 {
		b.arrived.Store(0)
		b.generation.Store(generation + 1)
	} else {
		for b.generation.Load() == generation {
		}
	}
}

// monotonic is the clock that all processes share.
func monotonic() float64 {
	var time syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&time)), 0)
	return float64(time.Nano())
}

func pair(p program, rounds int) {
	rounds = number("operations", rounds)
	if number("gate", 0) != 0 {
		if n, _ := os.Stdin.Read(make([]byte, 1)); n != 1 {
			fail(1, "standard input closed before the start signal")
		}
	}
	begin := monotonic()
	var done sync.WaitGroup
	done.Add(2)
	for i := 0; i < 2; i++ {
		go func() {
			defer done.Done()
			for i := 0; i < rounds; i++ {
				p.round()
			}
		}()
	}
	done.Wait()
	figure("begin", begin)
	figure("end", monotonic())
}
