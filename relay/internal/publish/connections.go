package publish

import (
	"errors"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// connections reports written produce requests, and failed connections, to the
// publisher. The Kafka client calls its methods before it processes a response; they do
// not block.
type connections struct{ p *Publisher }

var (
	_ kgo.HookBrokerConnect = connections{}
	_ kgo.HookBrokerWrite   = connections{}
	_ kgo.HookBrokerE2E     = connections{}
)

// OnBrokerConnect reports a connection that cannot be established.
func (h connections) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		h.tell(err)
	}
}

// OnBrokerWrite records that a produce request was written.
func (h connections) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, bytes int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.Produce) && bytes > 0 {
		h.p.wire()
	}
}

var errDisconnected = errors.New("the connection to the broker was lost")

// OnBrokerE2E records the time of the last response, and that a produce request was
// written, because a response may precede OnBrokerWrite. It reports a produce request
// that fails without a response.
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

// tell makes the breaker count a failure of the outstanding calls.
func (h connections) tell(err error) {
	select {
	case h.p.broken <- err:
	default: // one report is enough
	}
}

// wire records that every record handed to the producer so far may be written.
func (p *Publisher) wire() {
	now := p.handed.Load()
	for {
		before := p.wired.Load()
		if before >= now || p.wired.CompareAndSwap(before, now) {
			return
		}
	}
}
