package sim

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// stallAfter is for how many seconds in a row there was no message and no work of this process
// when virtual time has stopped. An hour without messages, the longest pause of a plan, is
// simulated in milliseconds. A process that is only short of processors works a little in
// most seconds.
const stallAfter = 30

// idleSecond is the most processor time that the process takes in a second without work: the
// ticks of watchForStall and of the runtime.
const idleSecond = 2 * time.Millisecond

// messages counts the messages of all networks, for watchForStall.
var messages atomic.Int64

// watchForStall ends the process if virtual time stops: when a goroutine waits for a
// sync.Mutex whose owner waits for a message. No wait for a mutex counts as durable
// (testing/synctest), so the bubble waits for both for ever. franz-go does that when two
// brokers are sent their first records: Client.producerID holds a mutex over the request
// for the producer's id. Such a run shows nothing about the relay, which is recorded in its
// result; any other stall is a failure. Call the returned function at the end of the run.
func watchForStall(seed uint64) (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		seen, used, quiet := messages.Load(), processorTime(), 0
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			now, usedNow := messages.Load(), processorTime()
			if now != seen || usedNow-used > idleSecond {
				quiet = 0
			} else {
				quiet++
			}
			seen, used = now, usedNow
			if quiet < stallAfter {
				continue
			}
			stacks := make([]byte, 16<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			if holdsProducerID(stacks) {
				fmt.Printf("sim-result {\"seed\":%d,\"undecided\":true}\n", seed)
			} else {
				fmt.Printf("virtual time has stopped\n%s\n", stacks)
			}
			os.Exit(1)
		}
	}()
	return func() { close(done) }
}

// holdsProducerID reports whether a goroutine waits for the mutex of a client's producer id.
func holdsProducerID(stacks []byte) bool {
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if bytes.Contains(stack, []byte("[sync.Mutex.Lock")) && bytes.Contains(stack, []byte("kgo.(*Client).producerID(")) {
			return true
		}
	}
	return false
}

// processorTime returns the processor time that this process has taken.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
