package httpapi

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Reception responds at the address of a server that is not ready yet, and hands the
// listener over once it is. Until then clients receive a response to retry, and no
// connection is refused during the handover. Its methods are safe for concurrent use.
type Reception struct {
	ln      net.Listener
	conns   chan arrival
	closed  chan struct{} // closed when no more connections are accepted
	closing sync.Once
	working sync.WaitGroup

	first    *desk // the listener of the reception itself
	srv      *http.Server
	accepted chan struct{}  // closed when srv accepts no more connections
	open     sync.WaitGroup // the connections of srv
	ending   sync.Once
	ended    chan struct{} // closed when its responses are sent
}

// arrival is a result of Accept.
type arrival struct {
	conn net.Conn
	err  error
}

const (
	// receptionTimeout bounds the read of a request of a reception and the write of its
	// response.
	receptionTimeout = 5 * time.Second
	// receptionDrain bounds the same once the reception has ended.
	receptionDrain = time.Second
)

// Receive serves h on ln. Closing the Reception, or the listener that HandOver returns,
// closes ln. Each response closes its connection, so that the next request reaches the
// current server.
func Receive(ln net.Listener, h http.Handler, log *slog.Logger) *Reception {
	r := &Reception{
		ln: ln, conns: make(chan arrival), closed: make(chan struct{}), accepted: make(chan struct{}), ended: make(chan struct{}),
	}
	r.first = &desk{Reception: r, done: make(chan struct{})}
	r.srv = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Connection", "close")
			h.ServeHTTP(w, req)
		}),
		ReadTimeout: receptionTimeout, WriteTimeout: receptionTimeout, MaxHeaderBytes: 32 << 10,
		ErrorLog:  slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState: r.count,
	}
	r.working.Go(r.pump)
	r.working.Go(func() {
		defer close(r.accepted)
		_ = r.srv.Serve(r.first) // the next owner of the listener receives its error too
	})
	return r
}

// count counts the connections of srv.
func (r *Reception) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		r.open.Add(1)
	case http.StateClosed, http.StateHijacked:
		r.open.Done()
	}
}

// pump accepts connections for the current server.
func (r *Reception) pump() {
	for {
		conn, err := r.ln.Accept()
		select {
		case r.conns <- arrival{conn, err}:
		case <-r.closed:
			if conn != nil {
				_ = conn.Close()
			}
			return
		}
	}
}

// HandOver ends the reception and returns the listener for the server. Closing it closes
// the listener of Receive. HandOver must be called once.
func (r *Reception) HandOver() net.Listener {
	r.end()
	return &desk{Reception: r, last: true, done: make(chan struct{})}
}

// end stops accepting connections and completes the responses. The server is not shut down,
// because net/http would then close connections whose first request has not arrived.
func (r *Reception) end() {
	r.ending.Do(func() {
		_ = r.first.Close() // always nil
		go func() {
			defer close(r.ended)
			<-r.accepted
			answered := make(chan struct{})
			go func() { defer close(answered); r.open.Wait() }()
			select {
			case <-answered:
			case <-time.After(receptionDrain):
			}
			_ = r.srv.Close() // only responses to retry are cut off
		}()
	})
}

// Close closes the listener unless it is closed, and waits for the responses of the
// reception.
func (r *Reception) Close() error {
	err := r.shut()
	r.end()
	<-r.ended
	return err
}

// shut closes the listener once.
func (r *Reception) shut() (err error) {
	r.closing.Do(func() {
		close(r.closed)
		err = r.ln.Close()
		r.working.Wait()
	})
	return err
}

// desk is the listener of one of the successive servers at an address.
type desk struct {
	*Reception
	last bool // closing it closes the address
	once sync.Once
	done chan struct{}
}

// Accept implements net.Listener.
func (d *desk) Accept() (net.Conn, error) {
	select {
	case <-d.done:
		return nil, net.ErrClosed
	default:
	}
	select {
	case a := <-d.conns:
		return a.conn, a.err
	case <-d.done:
	case <-d.closed:
	}
	return nil, net.ErrClosed
}

// Addr implements net.Listener.
func (d *desk) Addr() net.Addr { return d.ln.Addr() }

// Close implements net.Listener.
func (d *desk) Close() (err error) {
	d.once.Do(func() {
		close(d.done)
		if d.last {
			err = d.shut()
		}
	})
	return err
}
