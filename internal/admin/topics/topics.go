package topics

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/stream"
	"github.com/scylla-outbox/scylla-outbox/internal/topiclist"
	"github.com/scylla-outbox/scylla-outbox/relay/share"
)

const (
	// maxReads bounds the concurrent reads of a process, and half of it bounds the reads of
	// one principal: a viewer with many tabs must not exclude the others.
	maxReads = 4
	// placeTime bounds the wait for the end of other reads, and readTime the read itself.
	placeTime = 2 * time.Second
	readTime  = 6 * time.Second
)

// Kafka creates clients of the broker with the topics.
type Kafka interface {
	// Client returns a client with further options. The caller closes it.
	Client(more ...kgo.Opt) (*kgo.Client, error)
}

// Config configures a Browser.
type Config struct {
	// Kafka connects to the broker. With nil every read is refused as unavailable.
	Kafka Kafka
	// Topics are the readable topics, as in the event streams. Default:
	// stream.DefaultTopics.
	Topics stream.Topics
	// Schemas decodes payloads in the wire format of a schema registry. Default: none.
	Schemas *registry.Registry
	// Logger logs errors of the broker at Warn. Default discards.
	Logger *slog.Logger
}

// Browser reads topics. It is safe for concurrent use.
type Browser struct {
	cfg    Config
	places *access.Places
}

// New returns a Browser.
func New(cfg Config) *Browser {
	cfg.Topics = cfg.Topics.OrDefault()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Browser{cfg: cfg, places: access.NewPlaces(maxReads)}
}

// Register adds the operations. Each needs the role viewer.
func (b *Browser) Register(api huma.API) {
	huma.Register(api, access.Needs(access.Viewer, huma.Operation{
		OperationID: "list-topics", Method: http.MethodGet, Path: "/v1/topics", Summary: "List the topics with their offsets",
		Description: "The existing topics that watch.topics allows; internal topics never.",
		Responses:   httpapi.Describe[httpapi.Problem](api, "", http.StatusUnprocessableEntity),
	}), b.list)
	huma.Register(api, access.Needs(access.Viewer, huma.Operation{
		OperationID: "list-records", Method: http.MethodGet, Path: "/v1/topics/{topic}/records", Summary: "List the records of a topic, newest first",
		Description: "Committed records only. The read is bounded in time and bytes: a page may have fewer records than limit, and next while there are older ones. Repeat the request with after to follow the topic.",
		Responses:   httpapi.Describe[httpapi.Problem](api, "", http.StatusNotFound, http.StatusUnprocessableEntity),
	}), b.records)
}

// Topic is a topic with its partitions.
type Topic struct {
	Name       string           `json:"name"`
	Records    int64            `json:"records" doc:"Sum of end - first over the partitions, which also counts control records and offsets that compaction removed"`
	Partitions []TopicPartition `json:"partitions" nullable:"false" doc:"By number"`
}

// TopicPartition is a partition with its offsets.
type TopicPartition struct {
	Partition int32  `json:"partition"`
	First     int64  `json:"first" doc:"Offset of the oldest record"`
	End       int64  `json:"end" doc:"Offset of the next record"`
	Error     string `json:"error,omitempty" doc:"The broker's error; the offsets are unknown"`
}

// TopicsBody is the list of topics.
type TopicsBody struct {
	Topics []Topic `json:"topics" nullable:"false" doc:"By name"`
}

type listOutput struct{ Body TopicsBody }

func (b *Browser) list(ctx context.Context, _ *struct{}) (*listOutput, error) {
	out := new(listOutput)
	out.Body.Topics = []Topic{}
	err := b.reading(ctx, func(ctx context.Context, client *kgo.Client) (err error) {
		adm := kadm.NewClient(client)
		known, err := topiclist.All(ctx, adm)
		if err != nil {
			return err
		}
		known.FilterInternal()
		names := b.filterReadable(ctx, known.Names())
		if len(names) == 0 {
			return nil
		}
		starts, err := adm.ListStartOffsets(ctx, names...)
		if err != nil {
			return fmt.Errorf("read the first offsets: %w", err)
		}
		ends, err := adm.ListEndOffsets(ctx, names...)
		if err != nil {
			return fmt.Errorf("read the end offsets: %w", err)
		}
		for _, name := range names {
			out.Body.Topics = append(out.Body.Topics, newTopic(known[name], starts, ends))
		}
		return nil
	})
	if err != nil {
		return nil, b.toProblem(ctx, err)
	}
	return out, nil
}

func newTopic(d kadm.TopicDetail, starts, ends kadm.ListedOffsets) Topic {
	t := Topic{Name: d.Topic, Partitions: []TopicPartition{}}
	for _, p := range d.Partitions.Sorted() {
		first, _ := starts.Lookup(d.Topic, p.Partition)
		end, ok := ends.Lookup(d.Topic, p.Partition)
		out := TopicPartition{Partition: p.Partition}
		switch {
		case first.Err != nil:
			out.Error = first.Err.Error()
		case end.Err != nil:
			out.Error = end.Err.Error()
		case !ok:
			out.Error = "the broker returned no offsets"
		default:
			out.First, out.End = first.Offset, end.Offset
			t.Records += max(0, end.Offset-first.Offset)
		}
		t.Partitions = append(t.Partitions, out)
	}
	return t
}

// filterReadable returns the given topics that are readable.
func (b *Browser) filterReadable(ctx context.Context, topics []string) []string {
	return slices.DeleteFunc(b.cfg.Topics.FilterAllowed(ctx, topics), func(topic string) bool {
		internal, _ := path.Match(share.ControlTopic("*"), topic)
		return internal
	})
}

// reading calls f with a client once few others read, for a bounded time.
func (b *Browser) reading(ctx context.Context, f func(context.Context, *kgo.Client) error) error {
	if b.cfg.Kafka == nil {
		return unavailable("No broker is configured, so topics cannot be read.")
	}
	waiting, cancel := context.WithTimeout(ctx, placeTime)
	give, err := b.places.Wait(waiting, access.Holder(ctx, ""))
	cancel()
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return busy()
	}
	defer give()
	ctx, cancel = context.WithTimeout(ctx, readTime)
	defer cancel()
	client, err := b.cfg.Kafka.Client(clientOptions...)
	if err != nil {
		return err
	}
	defer client.Close()
	return f(ctx, client)
}

// clientOptions bound the requests that ignore the end of a context, those at the start of a
// connection.
var clientOptions = []kgo.Opt{
	kgo.MetadataMinAge(20 * time.Millisecond), kgo.DialTimeout(readTime / 2), kgo.RequestTimeoutOverhead(readTime / 2),
}
