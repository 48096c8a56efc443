package httpapi

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Reception answers at the address of a server that cannot begin yet, and hands the
// listener over once it can: who connects meanwhile is told to wait, and nobody is
// refused in between. Its methods are safe for concurrent use.
type Reception struct {
	ln      net.Listener
	conns   chan arrival
	closed  chan struct{} // closed when nobody is to come any more
	closing sync.Once
	working sync.WaitGroup

	first  *desk // where the reception itself takes connections
	srv    *http.Server
	ending sync.Once
	ended  chan struct{} // closed when its answers are out
}

// arrival is what Accept has returned.
type arrival struct {
	conn net.Conn
	err  error
}

const (
	// receptionTimeout bounds how long a request of a reception may take to come, and
	// its answer to go out.
	receptionTimeout = 5 * time.Second
	// receptionDrain is how long that may take once the reception has ended.
	receptionDrain = time.Second
)

// Receive answers on ln by h. Whoever asks for it closes it, which closes ln; so does
// closing the listener that HandOver returns. Each answer ends its connection, so that
// the next request comes to who answers then.
func Receive(ln net.Listener, h http.Handler, log *slog.Logger) *Reception {
	r := &Reception{ln: ln, conns: make(chan arrival), closed: make(chan struct{}), ended: make(chan struct{})}
	r.first = &desk{Reception: r, done: make(chan struct{})}
	r.srv = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Connection", "close")
			h.ServeHTTP(w, req)
		}),
		ReadTimeout: receptionTimeout, WriteTimeout: receptionTimeout, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	r.working.Go(r.pump)
	r.working.Go(func() { _ = r.srv.Serve(r.first) }) // if the listener has failed its next owner hears of it, too
	return r
}

// pump takes connections for whoever answers now.
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

// HandOver ends the reception and returns the listener, for the server that can begin.
// Closing it closes the one that Receive was given. It is to be called once.
func (r *Reception) HandOver() net.Listener {
	r.end()
	return &desk{Reception: r, last: true, done: make(chan struct{})}
}

// end has the reception take no more connections; what it answers goes out.
func (r *Reception) end() {
	r.ending.Do(func() {
		_ = r.first.Close() // always nil
		go func() {
			defer close(r.ended)
			ctx, cancel := context.WithTimeout(context.Background(), receptionDrain)
			defer cancel()
			if r.srv.Shutdown(ctx) != nil {
				_ = r.srv.Close() // what is cut off is a request to come again
			}
		}()
	})
}

// Close closes the listener, if nobody else has yet, and waits until all that the
// reception answers is out.
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

// desk is the listener of one of those who answer at an address in turn.
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
