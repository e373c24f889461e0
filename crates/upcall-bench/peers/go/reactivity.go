package main

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	chunkTime = 50 * time.Microsecond
	period    = 100 * time.Millisecond
)

// chunk is the turns of spin that take chunkTime on a processor that does nothing else.
func chunk() int {
	const turns = 200000
	best := int64(period)
	for i := 0; i < 20; i++ {
		begin := now()
		spin(turns)
		best = min(best, max(now()-begin, 1))
	}
	return int(turns * int64(chunkTime) / best)
}

// reactivity: an event from another process; the goroutine that waits for it, while others compute.
func reactivity() {
	threads, load := max(number("threads", 100), 1), number("load", 100)
	warmUp := number("warm_up", 20)
	samples, limit := number("samples", 1000)+warmUp, int64(number("limit_ms", 1500))*1000000
	chunks := max(int(period/chunkTime)*load/100/threads, 1)
	turns := chunk()
	connection, err := net.FileConn(os.Stdin)
	if err != nil {
		fail(1, "the socket to the process that makes events: %v", err)
	}
	var started, computing sync.WaitGroup
	var stop atomic.Bool
	gate := make(chan struct{})
	started.Add(threads)
	computing.Add(threads)
	for i := 0; i < threads; i++ {
		go func() {
			defer computing.Done()
			started.Done()
			<-gate
			for next := time.Now().Add(period); !stop.Load(); next = next.Add(period) {
				for i := 0; i < chunks && !stop.Load(); i++ {
					spin(turns)
				}
				if load < 100 {
					time.Sleep(time.Until(next))
				}
			}
		}()
	}
	started.Wait()
	if load > 0 {
		close(gate)
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		event := make([]byte, 16)
		begin := now()
		for i := 0; i < samples && (i == 0 || now()-begin < limit); i++ {
			if _, err := connection.Write([]byte{1}); err != nil {
				fail(1, "asking for an event: %v", err)
			}
			if _, err := io.ReadFull(connection, event); err != nil {
				fail(1, "waiting for an event: %v", err)
			}
			read := int64(monotonic())
			count, written := binary.LittleEndian.Uint64(event), int64(binary.LittleEndian.Uint64(event[8:]))
			if count != uint64(i) || written == 0 || written > read {
				fail(1, "event %d, written at %d, was read at %d in place of event %d", count, written, read, i)
			}
			if i >= warmUp || now()-begin > limit/10 {
				figure("ns", float64(max(read-written, 1)))
			}
		}
	}()
	<-waited
	stop.Store(true)
	if load == 0 {
		close(gate)
	}
	computing.Wait()
}
