package forward

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Defaults of Config.
const (
	// DefaultTimeout bounds a request to a peer, beside the time that it waits.
	DefaultTimeout = 5 * time.Second
	// DefaultStale is the age from which a report counts as that of a stopped instance.
	DefaultStale = 30 * time.Second
)

const (
	// refresh is the interval at which the reports of a subscription in use are read.
	refresh = 2 * time.Second
	// round bounds one wait: afterwards the peers may have changed.
	round = 5 * time.Second
	// pause is the time for which a peer is not asked after it had no messages, and
	// penalty that after it did not answer.
	pause   = 100 * time.Millisecond
	penalty = 2 * time.Second
	// handOverWait bounds the wait of Settle for the next owner of a partition: more than a
	// planned change takes.
	handOverWait = 10 * time.Second
	// firstPause and lastPause are the pauses between its attempts.
	firstPause = 50 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// Reports returns the last reports of the instances of a subscription.
type Reports interface {
	Instances(ctx context.Context, name string) ([]subscriptions.InstanceStatus, error)
}

// Receipts finds the instances for receipts of a subscription.
type Receipts interface {
	// Owner returns the instance that made a receipt; ok is false for texts that are none.
	Owner(name, text string) (instance string, ok bool)
	// Holders returns the instances that have the partitions of receipts now, as far as they
	// are known.
	Holders(ctx context.Context, name string, receipts []string) ([]string, error)
}

// Config configures a Service. Local, Instance, Key, Reports and Receipts are required.
type Config struct {
	// Local is the engine of this instance.
	Local subscriptions.Service
	// Instance is the name of this instance in receipts and reports.
	Instance string
	// Key is the key of receipts, which all instances share.
	Key []byte
	// Reports reads the instances.
	Reports Reports
	// Receipts reads owners; *engine.Engine implements it.
	Receipts Receipts
	// HTTP sends the requests. Default: a client with connections of its own.
	HTTP *http.Client
	// Timeout bounds a request to a peer, beside the time that it waits. Default 5 s.
	Timeout time.Duration
	// Stale is the age from which a report counts as that of a stopped instance. Default
	// 30 s; it must exceed the interval of reports.
	Stale time.Duration
	// Logger logs peers that do not answer. Default discards.
	Logger *slog.Logger
}

// Service is a subscriptions.Service on all instances. It is safe for concurrent use. What the
// database decides, such as Put, is that of the local engine.
type Service struct {
	subscriptions.Service
	cfg    Config
	signer signer

	running context.Context // of long polls
	stop    context.CancelFunc
	polls   sync.WaitGroup

	mu struct {
		sync.Mutex
		groups map[string]*group
	}
}

// New returns a Service. Close ends its requests to peers.
func New(c Config) (*Service, error) {
	c.Timeout, c.Stale = cmp.Or(c.Timeout, DefaultTimeout), cmp.Or(c.Stale, DefaultStale)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Local == nil || c.Reports == nil || c.Receipts == nil || c.Instance == "" || len(c.Key) < 16 {
		return nil, errors.New("forward config: local, reports, receipts, instance and a key of at least 16 bytes are required")
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second}}
	}
	s := &Service{Service: c.Local, cfg: c, signer: newSigner(c.Key)}
	s.running, s.stop = context.WithCancel(context.Background())
	s.mu.groups = map[string]*group{}
	return s, nil
}

// Close ends the requests to peers and waits for them.
func (s *Service) Close() error {
	s.stop()
	s.polls.Wait()
	s.cfg.HTTP.CloseIdleConnections()
	return nil
}

// group is what this instance knows about a subscription.
type group struct {
	mu struct {
		sync.Mutex
		reports    []subscriptions.InstanceStatus // of peers, also old ones
		read       time.Time
		refreshing bool
		turn       int
		asked      map[string]time.Time // when a peer may be asked, by instance
		waiters    []*waiter
		waiting    map[string]int // number of requests that wait, by consumer
		polling    map[poll]bool
	}
}

func (s *Service) group(name string) *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.mu.groups[name]
	if g == nil {
		g = new(group)
		g.mu.asked, g.mu.polling, g.mu.waiting = map[string]time.Time{}, map[poll]bool{}, map[string]int{}
		s.mu.groups[name] = g
	}
	return g
}

// reports returns the reports of peers that are at most maxAge old; older ones are read
// again. Without an answer of the database it returns the last ones and the error.
func (s *Service) reports(ctx context.Context, name string, maxAge time.Duration) ([]subscriptions.InstanceStatus, error) {
	g := s.group(name)
	g.mu.Lock()
	known, age, never := g.mu.reports, time.Since(g.mu.read), g.mu.read.IsZero()
	g.mu.Unlock()
	if !never && age <= maxAge {
		return known, nil
	}
	return s.read(ctx, name, g)
}

func (s *Service) read(ctx context.Context, name string, g *group) ([]subscriptions.InstanceStatus, error) {
	all, err := s.cfg.Reports.Instances(ctx, name)
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		return g.mu.reports, err
	}
	peers := make([]subscriptions.InstanceStatus, 0, len(all))
	for _, p := range all {
		if p.Instance != s.cfg.Instance {
			peers = append(peers, p)
		}
	}
	g.mu.reports, g.mu.read = peers, time.Now()
	return peers, nil
}

// peers returns the instances that may have messages, from reports that are read in the
// background: no request waits for the database, except for the first one.
func (s *Service) peers(ctx context.Context, name string) []subscriptions.InstanceStatus {
	g := s.group(name)
	g.mu.Lock()
	known, first := g.mu.reports, g.mu.read.IsZero()
	begin := !g.mu.refreshing && time.Since(g.mu.read) > refresh && s.running.Err() == nil
	g.mu.refreshing = g.mu.refreshing || begin
	g.mu.Unlock()
	if begin {
		get := func(ctx context.Context) (out []subscriptions.InstanceStatus) {
			out, err := s.read(ctx, name, g)
			if err != nil {
				s.cfg.Logger.WarnContext(ctx, "failed to read the instances of a subscription", "subscription", name, "err", err)
			}
			g.mu.Lock()
			g.mu.refreshing = false
			g.mu.Unlock()
			return out
		}
		if first {
			known = get(ctx)
		} else {
			s.polls.Go(func() { get(s.running) })
		}
	}
	out := make([]subscriptions.InstanceStatus, 0, len(known))
	for _, p := range known {
		if p.Partitions > 0 && p.Address != "" && s.fresh(p) {
			out = append(out, p)
		}
	}
	return out
}

// fresh reports whether an instance runs by its report.
func (s *Service) fresh(p subscriptions.InstanceStatus) bool { return time.Since(p.At) <= s.cfg.Stale }
