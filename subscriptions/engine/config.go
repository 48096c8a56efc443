package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

const (
	// sessionTimeout is the time after which the partitions of a failed instance are
	// reassigned, and in which an instance without contact to the coordinator leases.
	sessionTimeout = 12 * time.Second
	// rebalanceTimeout is the time in which an instance has to release its partitions:
	// more than drainTimeout and pushDrainTimeout, two commits and handOverTimeout.
	rebalanceTimeout = 60 * time.Second
	// metadataAge is the time after which new topics and partitions are discovered.
	metadataAge = 10 * time.Second
	// fetchBytes bounds one fetch in its wire form, which may be compressed.
	fetchBytes = 4 << 20
	// fetchWait is the time that a broker keeps a fetch without records. A partition whose
	// reading continues waits for the end of the fetch in progress, which does not contain it.
	fetchWait = 100 * time.Millisecond
	// maxBytes bounds the records of a subscription in memory, beside the records of one poll.
	maxBytes = 16 << 20
	// pollRecords is the number of records between two checks of the bounds.
	pollRecords = 2000
	// commitTimeout is the time after which the outcome of a commit is unknown.
	commitTimeout = 5 * time.Second
	// settleTimeout is the time after which the result of an action is unknown.
	settleTimeout = 10 * time.Second
	// drainTimeout bounds the work for a partition that is revoked.
	drainTimeout = 3 * time.Second
	// listInterval is the interval of reads of the list of subscriptions.
	listInterval = time.Second
	// replayInterval is the interval of reads of the operators' requests.
	replayInterval = time.Second
	// cleanInterval is the interval of removals of deleted subscriptions, and cleanAfter
	// the time in which all instances have stopped running one.
	cleanInterval = time.Minute
	cleanAfter    = time.Minute
	// reportInterval is the interval of reports of this instance.
	reportInterval = 5 * time.Second
)

// Store stores subscriptions and messages; *store.Store implements it.
type Store interface {
	Get(ctx context.Context, name string) (store.Resource, error)
	List(ctx context.Context) ([]store.Resource, error)
	Put(ctx context.Context, s subscriptions.Subscription, principal string) (store.Resource, error)
	Delete(ctx context.Context, name string, version int64, principal string) error
	Pause(ctx context.Context, name, principal string) (store.Resource, error)
	Resume(ctx context.Context, name, principal string) (store.Resource, error)
	Seek(ctx context.Context, name string, seek subscriptions.Seek, principal string) (store.Resource, error)
	Skips(ctx context.Context, incarnation string) ([]subscriptions.Skip, error)
	AcknowledgeSkips(ctx context.Context, incarnation, principal string) (int, error)
	NotePurge(ctx context.Context, name string, before time.Time, principal string) error
	ReceiptKey(ctx context.Context) ([]byte, error)
	Report(ctx context.Context, name string, i subscriptions.InstanceStatus) error
	Instances(ctx context.Context, name string) ([]subscriptions.InstanceStatus, error)
	ListDeleted(ctx context.Context) ([]store.Deleted, error)
	Clean(ctx context.Context, incarnation string) error
	Messages
}

// Messages stores the messages of partitions.
type Messages interface {
	ClaimPartition(ctx context.Context, p store.Partition, owner string) (int64, error)
	Owner(ctx context.Context, p store.Partition) (store.Owner, error)
	HandOver(ctx context.Context, p store.Partition) ([]byte, error)
	SetHandOver(ctx context.Context, p store.Partition, epoch int64, leases []byte) error
	Messages(ctx context.Context, p store.Partition) ([]store.Stored, error)
	Message(ctx context.Context, p store.Partition, offset int64) (store.Stored, error)
	Record(ctx context.Context, p store.Partition, offset int64) (*kgo.Record, error)
	Save(ctx context.Context, p store.Partition, epoch int64, messages []store.Stored) error
	Remove(ctx context.Context, p store.Partition, epoch int64, offsets []int64) error
	RemoveAll(ctx context.Context, p store.Partition, epoch int64) error
	Trim(ctx context.Context, p store.Partition, epoch, first int64) error
	TopicID(ctx context.Context, p store.Partition) ([16]byte, error)
	AddSkip(ctx context.Context, p store.Partition, k subscriptions.Skip) error
	SetTopicID(ctx context.Context, p store.Partition, epoch int64, id [16]byte) error
}

// DeadLetters stores dead letters; *dlq.Store implements it.
type DeadLetters interface {
	deadletter.Store
	Write(ctx context.Context, d *dlq.DeadLetter) (dlq.Status, error)
	Chains(ctx context.Context, table string, f func(dlq.ChainEntry) error) error
	FirstChains(ctx context.Context, table string, most int, f func(dlq.ChainEntry)) (more bool, err error)
	RequestedTables(ctx context.Context) ([]string, error)
}

// Schemas decodes the payload of an event into its Data. It waits for a schema until ctx ends; a
// ctx that has ended permits cached schemas alone. An error that wraps registry.ErrUnavailable may
// succeed later, and registry.ErrUnknown for a new message.
type Schemas interface {
	Decode(ctx context.Context, e *kafkarecord.Event) error
}

// Config of an Engine. Kafka, Store and DeadLetters are required.
type Config struct {
	// Kafka are the client's options: brokers, TLS, SASL.
	Kafka       []kgo.Opt
	Store       Store
	DeadLetters DeadLetters
	// Push are the destinations of subscriptions with push delivery. This process does not
	// run subscriptions with other ones.
	Push plugin.Destinations
	// Schemas decodes payloads by their schemas; *registry.Registry implements it. Default: none.
	Schemas Schemas
	// PluginsOnly runs only subscriptions whose destination is a plugin of Push: for
	// programs that other instances cannot reach.
	PluginsOnly bool
	// Instance names this process; it must differ between processes. Default: host,
	// process number and a random part.
	Instance string
	// Address is the address at which other instances reach this one.
	Address string
	// Logger receives failures. Default discards.
	Logger *slog.Logger
	// Registerer receives the metrics. Default: no metrics are registered.
	Registerer prometheus.Registerer
	// Tracer makes the spans of push deliveries, each linked to the span in the message's
	// traceparent. Nil makes none.
	Tracer trace.TracerProvider
}

func (c Config) withDefaults() Config {
	c.Instance = cmp.Or(c.Instance, self.Unique())
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

func (c *Config) validate() error {
	if c.Store == nil || c.DeadLetters == nil {
		return errors.New("subscriptions: store and dead letters are required")
	}
	if err := c.Push.Validate(); err != nil {
		return fmt.Errorf("subscriptions: %w", err)
	}
	return nil
}

// runs reports whether this process runs a subscription.
func (c *Config) runs(s *subscriptions.Subscription) bool {
	return !c.PluginsOnly || s.Push != nil && c.Push.Plugins[s.Push.To] != nil
}
