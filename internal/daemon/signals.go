package daemon

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// exitInterrupted is the exit status that a shell shows for a process that ended by
// SIGINT.
const exitInterrupted = 130

// Signals returns a context that ends at the first SIGINT or SIGTERM. A second one ends
// the process immediately, for the operator who does not wait for the drain. stop
// restores the default handling of signals.
func Signals(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-ch:
			cancel(SignalError{s})
		case <-done:
			return
		}
		select {
		case <-ch:
			os.Exit(exitInterrupted)
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(done)
		cancel(context.Canceled)
	}
}

// SignalError is the cause of a context that a signal ended.
type SignalError struct{ Signal os.Signal }

func (e SignalError) Error() string { return "received " + e.Signal.String() }
