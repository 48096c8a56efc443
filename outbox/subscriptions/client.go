// Package subscriptions is a Go client of the API of subscriptions, which are queues over topics:
// Client.Consume calls a handler for each message, and Receive, Ack and so on are the single
// steps. The other calls administer subscriptions.
package subscriptions

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/api"
	"github.com/scylla-outbox/scylla-outbox/outbox/internal/rest"
)

// Client accesses a service for subscriptions, such as &Client{URL: "http://127.0.0.1:8082"}. It
// has the fields, retries and errors of api.Client. It is safe for concurrent use.
type Client api.Client

// Subscription is a queue over topics. Name and Topics are required; other zero values mean
// the defaults of the API.
type Subscription struct {
	Name string `json:"name"`
	// Topics are names, or patterns with * for any characters.
	Topics []string `json:"topics"`
	// Types are event types or patterns; empty selects all. Filter is a CEL expression, and
	// Transform one that returns the payload and the headers to deliver.
	Types     []string `json:"types,omitempty"`
	Filter    string   `json:"filter,omitempty"`
	Transform string   `json:"transform,omitempty"`
	// Start is latest, earliest or a time, for partitions without a position.
	Start string `json:"start,omitempty"`
	// Ordering is key, strict or none.
	Ordering string `json:"ordering,omitempty"`
	// VisibilityTimeout, MaxExtension, Backoff and MaxBackoff are durations such as 30s.
	// MaxExtension bounds one delivery with its extensions. Each failure multiplies Backoff by
	// BackoffMultiplier, 1 to 10, up to MaxBackoff.
	VisibilityTimeout string `json:"visibility_timeout,omitempty"`
	MaxExtension      string `json:"max_extension,omitempty"`
	MaxReceive        int    `json:"max_receive,omitempty"`
	Backoff           string `json:"backoff,omitempty"`
	BackoffMultiplier int    `json:"backoff_multiplier,omitempty"`
	MaxBackoff        string `json:"max_backoff,omitempty"`
	// Push delivers the messages to a destination; nil leaves them to Receive.
	Push *Push `json:"push,omitempty"`
	// DeadLetter names the dead letters and limits their time.
	DeadLetter *DeadLetter `json:"dead_letter,omitempty"`
	// Paused stops deliveries; nil in a response means false. Put keeps the state
	// that Pause and Resume have set if it is nil.
	Paused *bool `json:"paused,omitempty"`
	// Version is that of the stored subscription. Put compares it unless it
	// is 0.
	Version int64 `json:"version,omitempty"`
	// CreatedAt, ChangedAt and ChangedBy are set by the server.
	CreatedAt time.Time `json:"created_at,omitzero"`
	ChangedAt time.Time `json:"changed_at,omitzero"`
	ChangedBy string    `json:"changed_by,omitempty"`
}

// DeadLetter configures the dead letters of a subscription.
type DeadLetter struct {
	// Name is a tag of each dead letter that is written from then on, such as the name of a queue
	// which several subscriptions share.
	Name string `json:"name,omitempty" pattern:"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$" doc:"Tag of the dead letters, by which lists and filters find them beside the table subscription.NAME; several subscriptions may have the same"`
	// RetentionDays is the number of days for which resolved and failed ones stay, 1 to 3,650, by
	// default the number in the server's settings.
	RetentionDays int `json:"retention_days,omitempty" minimum:"1" maximum:"3650" doc:"Days for which resolved and failed dead letters stay, instead of the settings retention.resolved and retention.failed. Open ones always stay"`
}

// Push is the delivery of messages to a destination. VisibilityTimeout is the time-out of a
// call.
type Push struct {
	// To names a target of the server's configuration, a Go plugin, or log.
	To string `json:"to"`
	// Title and Text contain CEL expressions over the event between {{ and }}, for targets.
	Title string `json:"title,omitempty"`
	Text  string `json:"text,omitempty"`
	// Severity is info, warning or critical.
	Severity string `json:"severity,omitempty"`
	// Concurrency is the number of concurrent calls in each process.
	Concurrency int `json:"concurrency,omitempty"`
}

// Status is the state of a subscription over all instances.
type Status struct {
	Subscription Subscription `json:"subscription"`
	// Waiting, Leased and Deferred are numbers of messages; Lag is the number of messages that
	// are not settled, with the records that are not read yet, Oldest the write time of the
	// oldest of them.
	Waiting     int64      `json:"waiting"`
	Leased      int64      `json:"leased"`
	Deferred    int64      `json:"deferred"`
	Lag         int64      `json:"lag"`
	Oldest      *time.Time `json:"oldest,omitempty"`
	DeadLetters int        `json:"dead_letters"`
	// Skips are the records that were never delivered.
	Skips []Skip `json:"skips,omitempty"`
	// Consumers are the consumers that wait for messages; Leases returns the consumers that have some.
	Consumers  []WaitingConsumer `json:"consumers"`
	Partitions []PartitionStatus `json:"partitions"`
	Instances  []InstanceStatus  `json:"instances"`
}

// Skip is a range of offsets that was passed over without a delivery, because their topic had
// deleted the records.
type Skip struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	// Generation grows whenever reading begins anew, as with each other topic of the name.
	Generation int64 `json:"generation"`
	// From is the first offset, To the one after the last. To is From if the end is unknown.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Count is the number of records, 0 if it is unknown; a record may have been no message.
	Count int64 `json:"count"`
	// Reason is deleted or topic_deleted.
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	// AcknowledgedAt and AcknowledgedBy are set by AcknowledgeSkips.
	AcknowledgedAt time.Time `json:"acknowledged_at,omitzero"`
	AcknowledgedBy string    `json:"acknowledged_by,omitempty"`
}

// WaitingConsumer is a consumer without a message: its long polls, streams or sockets wait.
type WaitingConsumer struct {
	Consumer string `json:"consumer" doc:"Name of its token or its address, and behind it the name that it gives to itself"`
	Instance string `json:"instance" doc:"The process at which it waits"`
	Requests int    `json:"requests" doc:"Number of its requests that wait"`
}

// PartitionStatus is the state of one partition of a subscription. Without an owner Lag is the number
// of offsets from Committed to End. With one it is that of the waiting, leased and deferred messages,
// and of the records that the owner has not read yet, by their offsets: types and filter may not
// select some of them, and control records and offsets without a record are none.
type PartitionStatus struct {
	Topic       string    `json:"topic"`
	Partition   int32     `json:"partition"`
	Owner       string    `json:"owner,omitempty" doc:"Instance that delivers its messages; absent without one"`
	Epoch       int64     `json:"epoch"`
	Committed   int64     `json:"committed" doc:"Offset up to which all records are settled or stored"`
	CommittedAt time.Time `json:"committed_at,omitzero" doc:"Time of the last commit of the owner; absent before its first one"`
	End         int64     `json:"end"`
	Waiting     int64     `json:"waiting"`
	Leased      int64     `json:"leased"`
	Deferred    int64     `json:"deferred"`
	Lag         int64     `json:"lag" doc:"Messages that are not settled; without an owner the offsets from committed to end"`
	Oldest      time.Time `json:"oldest,omitzero"`
}

// InstanceStatus is the last report of a process that runs a subscription.
type InstanceStatus struct {
	Instance   string         `json:"instance"`
	Address    string         `json:"address,omitempty"`
	At         time.Time      `json:"at" doc:"Time of its last report"`
	Partitions int            `json:"partitions"`
	LastError  string         `json:"last_error,omitempty"`
	Breaker    *BreakerStatus `json:"breaker,omitempty" doc:"Circuit breaker of the destination at the time of the report; absent with pull delivery"`
}

// BreakerStatus is the state of the circuit breaker of a push destination.
type BreakerStatus struct {
	// State is closed, open or half-open. Unless it is closed, the destination gets nothing but
	// probes, and no delivery counts.
	State string `json:"state" enum:"closed,half-open,open" doc:"Unless it is closed, the destination gets nothing but probes, and no delivery counts"`
	// Since is the time of the last change, zero if there was none.
	Since time.Time `json:"since,omitzero" doc:"Time of the last change; absent if there was none"`
	// NextProbe is the earliest time of the next call, and Cause the failure that opened the
	// breaker; zero and empty while it is closed.
	NextProbe time.Time `json:"next_probe,omitzero" doc:"Earliest time of the next call; absent while it is closed"`
	Cause     string    `json:"cause,omitempty" doc:"The failure that opened it; absent while it is closed"`
}

// Lease is a message in flight, as operators see it. It is no receipt.
type Lease struct {
	// ID names the lease for EndLease.
	ID        string `json:"id" doc:"Names the lease for its end: topic, partition, offset and a number"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	EventID   string `json:"event_id,omitempty"`
	Key       string `json:"key,omitempty"`
	// Consumer is the name of a token, an address, or the destination of push delivery.
	Consumer   string    `json:"consumer,omitempty" doc:"Name of the token that received it, or the client address without tokens, and behind a slash the name that the consumer has given to itself; the destination with push delivery"`
	Attempt    int       `json:"attempt" doc:"Number of deliveries, with this one"`
	MaxReceive int       `json:"max_receive"`
	ReceivedAt time.Time `json:"received_at" doc:"By the clock of the owner"`
	ExpiresAt  time.Time `json:"expires_at"`
	Owner      string    `json:"owner" doc:"Instance that owns the partition"`
}

// LeasePage is a page of messages in flight, the one received first at the beginning.
type LeasePage struct {
	Leases []Lease `json:"leases"`
	// Next is the cursor of the next page; empty on the last page.
	Next string `json:"next"`
	// Unknown contains the instances that have not answered: their leases are missing.
	Unknown []string `json:"unknown"`
}

// SeekTo is a new position of a subscription.
type SeekTo struct {
	// To is latest, earliest, a time in RFC 3339, or offset.
	To string `json:"to"`
	// Topic and Partition limit it; empty and nil mean all.
	Topic     string `json:"topic,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
	// Offset is required if To is offset, with Topic and Partition.
	Offset *int64 `json:"offset,omitempty"`
}

const subscriptionsPath = "/v1/subscriptions"

// List returns all subscriptions, sorted by name.
func (c *Client) List(ctx context.Context) ([]Subscription, error) {
	out, err := rest.Send[struct {
		Subscriptions []Subscription `json:"subscriptions"`
	}](ctx, (*api.Client)(c), http.MethodGet, subscriptionsPath, nil)
	return out.Subscriptions, err
}

// Get returns a subscription.
func (c *Client) Get(ctx context.Context, name string) (Subscription, error) {
	return rest.Send[Subscription](ctx, (*api.Client)(c), http.MethodGet, subscriptionsPath+"/"+url.PathEscape(name), nil)
}

// Put creates or replaces a subscription and returns it as stored.
func (c *Client) Put(ctx context.Context, s Subscription) (Subscription, error) {
	return rest.Send[Subscription](ctx, (*api.Client)(c), http.MethodPut, subscriptionsPath+"/"+url.PathEscape(s.Name), s, ifVersion(s.Version))
}

// Delete removes a subscription, unless its version is another than the given
// one; 0 is any.
func (c *Client) Delete(ctx context.Context, name string, version int64) error {
	return c.do(ctx, http.MethodDelete, subscriptionsPath+"/"+url.PathEscape(name), nil, ifVersion(version))
}

// do sends a request whose response has no body.
func (c *Client) do(ctx context.Context, method, path string, body any, options ...api.Option) error {
	_, err := rest.Send[struct{}](ctx, (*api.Client)(c), method, path, body, options...)
	return err
}

// ifVersion makes a change only at a version; 0 is any.
func ifVersion(version int64) api.Option {
	return func(h http.Header) {
		if version != 0 {
			h.Set("If-Match", strconv.Quote(strconv.FormatInt(version, 10)))
		}
	}
}

// Pause stops deliveries; leases stay valid.
func (c *Client) Pause(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, subscriptionPath(name, "pause"), nil)
}

// Resume continues deliveries.
func (c *Client) Resume(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, subscriptionPath(name, "resume"), nil)
}

// AcknowledgeSkips notes that the records which were not delivered are known, and ends their
// problem on /readyz.
func (c *Client) AcknowledgeSkips(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, subscriptionPath(name, "skips/acknowledge"), nil)
}

// Seek moves the position of a subscription and ends the leases concerned.
func (c *Client) Seek(ctx context.Context, name string, to SeekTo) error {
	return c.do(ctx, http.MethodPost, subscriptionPath(name, "seek"), to)
}

// Purge removes the messages that were written before a time, zero for now, and
// returns their number. A dry run only counts them.
func (c *Client) Purge(ctx context.Context, name string, until time.Time, dryRun bool) (int64, error) {
	out, err := rest.Send[struct {
		Count int64 `json:"count"`
	}](ctx, (*api.Client)(c), http.MethodPost, subscriptionPath(name, "purge"), struct {
		Until  time.Time `json:"until,omitzero"`
		DryRun bool      `json:"dry_run"`
	}{until, dryRun})
	return out.Count, err
}

// Leases returns a page of up to limit messages in flight, at most 1,000. cursor is empty for
// the first page, then LeasePage.Next.
func (c *Client) Leases(ctx context.Context, name, cursor string, limit int) (LeasePage, error) {
	q := url.Values{"limit": {strconv.Itoa(limit)}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return rest.Send[LeasePage](ctx, (*api.Client)(c), http.MethodGet, subscriptionPath(name, "leases")+"?"+q.Encode(), nil)
}

// EndLease ends the lease with an id: its message can be delivered again immediately.
func (c *Client) EndLease(ctx context.Context, name, id string) error {
	return c.do(ctx, http.MethodDelete, subscriptionPath(name, "leases/"+url.PathEscape(id)), nil)
}

// RejectLease makes the message of the lease with an id a dead letter.
func (c *Client) RejectLease(ctx context.Context, name, id string) error {
	return c.do(ctx, http.MethodPost, subscriptionPath(name, "leases/"+url.PathEscape(id)+"/reject"), nil)
}

// Status returns the state of a subscription.
func (c *Client) Status(ctx context.Context, name string) (Status, error) {
	return rest.Send[Status](ctx, (*api.Client)(c), http.MethodGet, subscriptionPath(name, "status"), nil)
}
