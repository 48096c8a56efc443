package subscriptions

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/glob"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
)

// Defaults and limits of a Subscription.
const (
	DefaultVisibilityTimeout = 30 * time.Second
	MinVisibilityTimeout     = time.Second
	MaxVisibilityTimeout     = 12 * time.Hour
	DefaultMaxExtension      = MaxVisibilityTimeout
	DefaultMaxReceive        = 3
	MaxMaxReceive            = 1000
	DefaultBackoff           = time.Second
	DefaultMaxBackoff        = 5 * time.Minute
	DefaultBackoffMultiplier = 2
	MaxBackoffMultiplier     = 10
	// MaxTopics is the maximum number of names and patterns of a subscription.
	MaxTopics = 100
	// MaxName is the maximum length of a name.
	MaxName = 60
)

// Ordering is the order in which the messages of one key are delivered.
type Ordering string

// The values of Ordering.
const (
	// OrderingKey delivers the messages of a key one at a time over all topics, in the order of
	// their partition. A dead-lettered message lets the next one pass.
	OrderingKey Ordering = "key"
	// OrderingStrict is OrderingKey, and a key stays blocked until its dead letter is
	// resolved, released or discarded.
	OrderingStrict Ordering = "strict"
	// OrderingNone delivers messages in any order and concurrently.
	OrderingNone Ordering = "none"
)

// Values of Subscription.Start other than a time.
const (
	// StartLatest begins with the records that are written after the subscription was
	// created.
	StartLatest = "latest"
	// StartEarliest begins with the oldest record of each partition.
	StartEarliest = "earliest"
)

// Absent is the Version for a Put that only creates.
const Absent = -1

// Subscription is the configuration of a subscription. Name and Topics are required;
// other zero values mean the documented defaults.
type Subscription struct {
	// Name identifies the subscription, its consumer group and its dead letters: 1 to
	// 60 of a-z, A-Z, 0-9, - and _.
	Name string
	// Topics are topic names, or patterns in which * matches any characters. Patterns do
	// not match topics that begin with _.
	Topics []string
	// Types are event types, or patterns with *; empty selects all.
	Types []string
	// Filter is a CEL expression over the event; only messages for which it is true are
	// delivered. A message for which it cannot be evaluated is dead-lettered. Empty
	// selects all.
	Filter string
	// Transform is a CEL expression over the event that returns a map with the key payload,
	// the key headers or both: what the consumer receives instead. Null removes a header. A
	// message for which it fails is dead-lettered as it was. Empty changes nothing.
	Transform string
	// Start is the first record of partitions without a position: latest, earliest or a
	// time in RFC 3339. Default latest. It has no effect on partitions with a position;
	// Seek has.
	Start string
	// Ordering is key, strict or none. Default key.
	Ordering Ordering
	// VisibilityTimeout is the duration of a lease: 1 s to 12 h. Default 30 s.
	VisibilityTimeout time.Duration
	// MaxExtension bounds one delivery: its lease ends at most so long after its begin, whatever
	// the request to receive and extensions want. VisibilityTimeout to 12 h. Default 12 h.
	MaxExtension time.Duration
	// MaxReceive is the number of deliveries after which a message is dead-lettered: 1
	// to 1,000. Default 3. The header HeaderMaxReceive of a message replaces it.
	MaxReceive int
	// Backoff is the delay after the first failed delivery; each further failure multiplies it
	// by BackoffMultiplier, 1 to 10, up to MaxBackoff, with jitter. Default 1 s, 2 and 5 min.
	Backoff, MaxBackoff time.Duration
	BackoffMultiplier   int
	// Push delivers the messages to a destination; nil leaves them to Receive, which is
	// refused otherwise.
	Push *Push
	// DeadLetter names the dead letters and limits their time.
	DeadLetter DeadLetter
	// Paused stops deliveries. Leases that exist stay valid. It is a state that Pause and Resume
	// change too: with KeepPaused, which is not stored, Put does not change it.
	Paused, KeepPaused bool

	// Version counts the changes, from 1. Put compares it unless it is 0; with Absent there must be
	// no subscription.
	Version int64
	// Created is set by Put, and not stored: there was no subscription before.
	Created bool
	// CreatedAt and ChangedAt are set by the store, ChangedBy is the principal of the
	// last change.
	CreatedAt, ChangedAt time.Time
	ChangedBy            string
}

// MaxRetentionDays is the maximum of DeadLetter.RetentionDays.
const MaxRetentionDays = 3650

// DeadLetter configures the dead letters of a subscription. They always belong to the
// subscription: their table is DeadLetterTable, and a replay goes to it alone.
type DeadLetter = client.DeadLetter

var deadLetterName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)

func validateDeadLetter(d *DeadLetter, bad func(format string, args ...any)) {
	if d.Name != "" && !deadLetterName.MatchString(d.Name) {
		bad("dead_letter.name %q: use letters, digits, ., - and _, at most 64, the first a letter or digit", d.Name)
	}
	if d.RetentionDays < 0 || d.RetentionDays > MaxRetentionDays {
		bad("dead_letter.retention_days %d: must be 1 to %d", d.RetentionDays, MaxRetentionDays)
	}
}

// WithDefaults returns the subscription with defaults for zero values.
func (s Subscription) WithDefaults() Subscription {
	s.Start = cmp.Or(s.Start, StartLatest)
	s.Ordering = cmp.Or(s.Ordering, OrderingKey)
	s.VisibilityTimeout = cmp.Or(s.VisibilityTimeout, DefaultVisibilityTimeout)
	s.MaxExtension = cmp.Or(s.MaxExtension, DefaultMaxExtension)
	s.MaxReceive = cmp.Or(s.MaxReceive, DefaultMaxReceive)
	s.Backoff = cmp.Or(s.Backoff, DefaultBackoff)
	s.MaxBackoff = cmp.Or(s.MaxBackoff, max(DefaultMaxBackoff, s.Backoff))
	s.BackoffMultiplier = cmp.Or(s.BackoffMultiplier, DefaultBackoffMultiplier)
	s.Push = withPushDefaults(s.Push)
	return s
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,60}$`)

// CheckName returns nil for the name of a subscription.
func CheckName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("name %q: use letters, digits, - and _, at most %d", name, MaxName)
	}
	return nil
}

// topicPattern is a name of Kafka with *.
var topicPattern = regexp.MustCompile(`^[a-zA-Z0-9._*-]{1,249}$`)

// Validate reports every problem of the fields, except of Filter, of Transform, and of the
// expressions and the destination of Push, which need more than the subscription. Call it on
// the result of WithDefaults.
func (s *Subscription) Validate() error {
	errs := []error{CheckName(s.Name)}
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(s.Topics) == 0 || len(s.Topics) > MaxTopics {
		bad("topics: %d names or patterns; there must be 1 to %d", len(s.Topics), MaxTopics)
	}
	for field, patterns := range map[string][]string{"topics": s.Topics, "types": s.Types} {
		for _, p := range patterns {
			if !glob.Valid(p) || len(p) > 249 {
				bad("%s: %q is no pattern; write names, with * for any characters", field, p)
			} else if field == "topics" && (!topicPattern.MatchString(p) || p == "." || p == "..") {
				bad("topics: %q: use letters, digits, ., _ and -, as names of topics have, and * for any characters", p)
			}
		}
	}
	if _, err := s.StartTime(time.Time{}); err != nil {
		errs = append(errs, err)
	}
	if !slices.Contains([]Ordering{OrderingKey, OrderingStrict, OrderingNone}, s.Ordering) {
		bad("ordering %q: use key, strict or none", s.Ordering)
	}
	if s.VisibilityTimeout < MinVisibilityTimeout || s.VisibilityTimeout > MaxVisibilityTimeout {
		bad("visibility_timeout %s: must be %s to %s", s.VisibilityTimeout, MinVisibilityTimeout, MaxVisibilityTimeout)
	}
	if s.MaxExtension < min(s.VisibilityTimeout, MaxVisibilityTimeout) || s.MaxExtension > MaxVisibilityTimeout {
		bad("max_extension %s: must be at least visibility_timeout, %s, and at most %s", s.MaxExtension, s.VisibilityTimeout, MaxVisibilityTimeout)
	}
	if s.MaxReceive < 1 || s.MaxReceive > MaxMaxReceive {
		bad("max_receive %d: must be 1 to %d", s.MaxReceive, MaxMaxReceive)
	}
	if s.Backoff <= 0 || s.MaxBackoff < s.Backoff || s.MaxBackoff > MaxVisibilityTimeout {
		bad("backoff %s, max_backoff %s: must be positive, max_backoff not below backoff and at most %s", s.Backoff, s.MaxBackoff, MaxVisibilityTimeout)
	}
	if s.BackoffMultiplier < 1 || s.BackoffMultiplier > MaxBackoffMultiplier {
		bad("backoff_multiplier %d: must be 1 to %d", s.BackoffMultiplier, MaxBackoffMultiplier)
	}
	if s.Push != nil {
		validatePush(s.Push, bad)
	}
	validateDeadLetter(&s.DeadLetter, bad)
	return errors.Join(errs...)
}

// StartTime returns the time from which a partition without a position is read: the zero
// time for its beginning, and created for StartLatest.
func (s *Subscription) StartTime(created time.Time) (time.Time, error) {
	switch s.Start {
	case StartLatest:
		return created, nil
	case StartEarliest:
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s.Start)
	if err != nil {
		return time.Time{}, fmt.Errorf("start %q: use latest, earliest or a time such as 2026-01-02T15:04:05Z", s.Start)
	}
	return t, nil
}

// TopicRegexps returns the topics in the form of the Kafka client; patterns is false if
// they are names.
func (s *Subscription) TopicRegexps() (topics []string, patterns bool) {
	if !strings.Contains(strings.Join(s.Topics, ""), "*") {
		return s.Topics, false
	}
	for _, t := range s.Topics {
		topics = append(topics, "^"+strings.ReplaceAll(regexp.QuoteMeta(t), `\*`, `.*`)+"$")
	}
	return topics, true
}

// Incarnation names the subscription and its creation. Consumer groups and stored messages
// belong to it, so that a subscription that is deleted and created again begins anew. It is
// the name, a dot, and letters and digits. CreatedAt must be set.
func (s *Subscription) Incarnation() string {
	return s.Name + "." + strconv.FormatInt(s.CreatedAt.UnixMilli(), 36)
}

// DeadLetterTable returns the Table of the subscription's dead letters.
func (s *Subscription) DeadLetterTable() string { return "subscription." + s.Name }
