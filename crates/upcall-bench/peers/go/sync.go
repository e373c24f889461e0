package main

import (
	"os"
	"runtime"
	"sync"
)

// each times `operations` operations of one sample, after one for warm-up.
func each(operations int, sample func(operations int)) {
	for i := 0; i <= number("samples", 5); i++ {
		begin := now()
		sample(operations)
		if i > 0 {
			figure("ns", float64(now()-begin)/float64(operations))
		}
	}
}

func createJoin() {
	each(number("operations", 2000), func(operations int) {
		for i := 0; i < operations; i++ {
			var done sync.WaitGroup
			done.Add(1)
			go done.Done()
			done.Wait()
		}
	})
}

// semaphore is a round trip over two unbuffered channels.
func semaphore() {
	each(number("operations", 10000), func(operations int) {
		ping, pong := make(chan struct{}), make(chan struct{})
		go func() {
			for i := 0; i < operations; i++ {
				<-ping
				pong <- struct{}{}
			}
		}()
		for i := 0; i < operations; i++ {
			ping <- struct{}{}
			<-pong
		}
	})
}

func signalWait() {
	each(number("operations", 10000), func(operations int) {
		var mutex sync.Mutex
		var done sync.WaitGroup
		conditions := [2]*sync.Cond{sync.NewCond(&mutex), sync.NewCond(&mutex)}
		turn := 0
		done.Add(2)
		for me := 0; me < 2; me++ {
			go func(me int) {
				defer done.Done()
				mutex.Lock()
				defer mutex.Unlock()
				for i := 0; i < operations; i++ {
					for turn != me {
						conditions[me].Wait()
					}
					turn = 1 - me
					conditions[1-me].Signal()
				}
			}(me)
		}
		done.Wait()
	})
}

// yield counts a switch, as the program with POSIX threads does: two goroutines yield.
func yield() {
	operations := number("operations", 50000)
	each(2*operations, func(int) {
		var done sync.WaitGroup
		done.Add(2)
		for me := 0; me < 2; me++ {
			go func() {
				defer done.Done()
				for i := 0; i < operations; i++ {
					runtime.Gosched()
				}
			}()
		}
		done.Wait()
	})
}

func newPipe() (*os.File, *os.File) {
	read, write, err := os.Pipe()
	if err != nil {
		fail(1, "pipe: %v", err)
	}
	return read, write
}

func pipeExchange() {
	each(number("operations", 5000), func(operations int) {
		firstIn, secondOut := newPipe()
		secondIn, firstOut := newPipe()
		var done sync.WaitGroup
		done.Add(2)
		go func() {
			defer done.Done()
			one := []byte{1}
			for i := 0; i < operations; i++ {
				firstOut.Write(one)
				firstIn.Read(one)
			}
		}()
		go func() {
			defer done.Done()
			one := []byte{1}
			for i := 0; i < operations; i++ {
				secondIn.Read(one)
				secondOut.Write(one)
			}
		}()
		done.Wait()
		for _, file := range []*os.File{firstIn, firstOut, secondIn, secondOut} {
			file.Close()
		}
	})
}
