package publish

import (
	"errors"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// connections tells the publisher of produce requests that were written, and of
// those that failed without an answer. Its methods are called by the Kafka
// client before it deals with an answer; they do not block.
type connections struct{ p *Publisher }

var (
	_ kgo.HookBrokerConnect = connections{}
	_ kgo.HookBrokerWrite   = connections{}
	_ kgo.HookBrokerE2E     = connections{}
)

// OnBrokerConnect notes a connection that cannot be made.
func (h connections) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		h.tell(err)
	}
}

// OnBrokerWrite notes that records are on their way.
func (h connections) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, bytes int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.Produce) && bytes > 0 {
		h.p.wire()
	}
}

var errDisconnected = errors.New("the connection to the broker was lost")

// OnBrokerE2E notes that records were on their way, in case an answer is quicker
// than OnBrokerWrite, and that an answer will not come.
func (h connections) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e kgo.BrokerE2E) {
	if e.Err() == nil && e.BytesRead > 0 {
		h.p.heard.Store(time.Now().UnixNano())
	}
	if key != int16(kmsg.Produce) {
		return
	}
	if e.BytesWritten > 0 {
		h.p.wire()
	}
	if err := errors.Join(e.WriteErr, e.ReadErr); err != nil {
		h.tell(errors.Join(errDisconnected, err))
	}
}

// tell makes the breaker count a failure of what is under way.
func (h connections) tell(err error) {
	select {
	case h.p.broken <- err:
	default: // one is enough
	}
}

// wire notes that any record handed to the producer so far may be written.
func (p *Publisher) wire() {
	now := p.handed.Load()
	for {
		before := p.wired.Load()
		if before >= now || p.wired.CompareAndSwap(before, now) {
			return
		}
	}
}
