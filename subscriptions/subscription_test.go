package subscriptions

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSubscription_WithDefaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ set, want Subscription }{
		"nothing is set": {
			Subscription{},
			Subscription{Start: "latest", Ordering: OrderingKey, VisibilityTimeout: 30 * time.Second, MaxExtension: 12 * time.Hour, MaxReceive: 3, Backoff: time.Second, MaxBackoff: 5 * time.Minute, BackoffMultiplier: 2},
		},
		"everything is set": {
			Subscription{Start: "earliest", Ordering: OrderingNone, VisibilityTimeout: time.Hour, MaxExtension: 2 * time.Hour, MaxReceive: 1, Backoff: time.Minute, MaxBackoff: time.Hour, BackoffMultiplier: 2},
			Subscription{Start: "earliest", Ordering: OrderingNone, VisibilityTimeout: time.Hour, MaxExtension: 2 * time.Hour, MaxReceive: 1, Backoff: time.Minute, MaxBackoff: time.Hour, BackoffMultiplier: 2},
		},
		"a backoff above the default maximum": {
			Subscription{Backoff: time.Hour},
			Subscription{Start: "latest", Ordering: OrderingKey, VisibilityTimeout: 30 * time.Second, MaxExtension: 12 * time.Hour, MaxReceive: 3, Backoff: time.Hour, MaxBackoff: time.Hour, BackoffMultiplier: 2},
		},
		"push": {
			Subscription{Push: &Push{To: "hook"}},
			Subscription{
				Start: "latest", Ordering: OrderingKey, VisibilityTimeout: 30 * time.Second, MaxExtension: 12 * time.Hour, MaxReceive: 3, Backoff: time.Second, MaxBackoff: 5 * time.Minute, BackoffMultiplier: 2,
				Push: &Push{To: "hook", Severity: "info", Concurrency: 4},
			},
		},
	} {
		before := fmt.Sprintf("%+v", tt.set.Push)
		if got := tt.set.WithDefaults(); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: WithDefaults() = %+v, want %+v", name, got, tt.want)
		}
		if after := fmt.Sprintf("%+v", tt.set.Push); after != before {
			t.Errorf("%s: the original has become %s", name, after)
		}
	}
}

// Each problem names its field, its value and the allowed values.
func TestSubscription_Validate(t *testing.T) {
	t.Parallel()
	many := func(n int) []string { return slices.Repeat([]string{"orders"}, n) }
	long := strings.Repeat("x", 250)
	for _, tt := range []struct {
		name   string
		change func(*Subscription)
		want   []string
	}{
		{"valid", func(*Subscription) {}, nil},
		{"every character of a name", func(s *Subscription) { s.Name = "aZ0-_" }, nil},
		{"the longest name", func(s *Subscription) { s.Name = long[:60] }, nil},
		{"no name", func(s *Subscription) { s.Name = "" }, []string{`name "": use letters, digits, - and _, at most 60`}},
		{"a longer name", func(s *Subscription) { s.Name = long[:61] }, []string{`name "` + long[:61] + `": use letters`}},
		{"a name with a dot", func(s *Subscription) { s.Name = "a.b" }, []string{`name "a.b": use letters`}},
		{"a name of two lines", func(s *Subscription) { s.Name = "a\n" }, []string{`name "a\n": use letters`}},

		{"most topics", func(s *Subscription) { s.Topics = many(100) }, nil},
		{"no topics", func(s *Subscription) { s.Topics = nil }, []string{"topics: 0 names or patterns; there must be 1 to 100"}},
		{"one topic more", func(s *Subscription) { s.Topics = many(101) }, []string{"topics: 101 names or patterns"}},
		{"an empty topic", func(s *Subscription) { s.Topics = []string{""} }, []string{`topics: "" is no pattern; write names, with * for any characters`}},
		{"the longest topic", func(s *Subscription) { s.Topics = []string{long[:249]} }, nil},
		{"a longer topic", func(s *Subscription) { s.Topics = []string{long} }, []string{`topics: "` + long + `" is no pattern`}},
		{"patterns", func(s *Subscription) { s.Topics, s.Types = []string{"*", "shop-*"}, []string{"Order*"} }, nil},
		{"characters of topics", func(s *Subscription) { s.Topics = []string{"aZ0._-", "a*"} }, nil},
		{"a topic with a zero byte", func(s *Subscription) { s.Topics = []string{"a\x00"} }, []string{`topics: "a\x00": use letters, digits, ., _ and -`}},
		{"a topic with a space", func(s *Subscription) { s.Topics = []string{"a b", "é", "a/b", "a?", ".."} }, []string{`topics: "a b": use`, `topics: "é": use`, `topics: "a/b": use`, `topics: "a?": use`, `topics: "..": use`}},
		{"a type that is no pattern", func(s *Subscription) { s.Types = []string{"a", "["} }, []string{`types: "[" is no pattern`}},
		{"an empty type", func(s *Subscription) { s.Types = []string{""} }, []string{`types: "" is no pattern`}},

		{"the oldest record", func(s *Subscription) { s.Start = "earliest" }, nil},
		{"a time", func(s *Subscription) { s.Start = "2026-01-02T15:04:05+01:00" }, nil},
		{"a date", func(s *Subscription) { s.Start = "2026-01-02" }, []string{`start "2026-01-02": use latest, earliest or a time such as 2026-01-02T15:04:05Z`}},
		{"an order that does not exist", func(s *Subscription) { s.Ordering = "fifo" }, []string{`ordering "fifo": use key, strict or none`}},

		{"the shortest lease", func(s *Subscription) { s.VisibilityTimeout = time.Second }, nil},
		{"a shorter lease", func(s *Subscription) { s.VisibilityTimeout = time.Second - 1 }, []string{"visibility_timeout 999.999999ms: must be 1s to 12h0m0s"}},
		{"the longest lease", func(s *Subscription) { s.VisibilityTimeout = 12 * time.Hour }, nil},
		{"a longer lease", func(s *Subscription) { s.VisibilityTimeout = 12*time.Hour + 1 }, []string{"visibility_timeout 12h0m0.000000001s: must be"}},
		{"no extension", func(s *Subscription) { s.MaxExtension = s.VisibilityTimeout }, nil},
		{"a delivery shorter than a lease", func(s *Subscription) { s.MaxExtension = 29 * time.Second }, []string{"max_extension 29s: must be at least visibility_timeout, 30s, and at most 12h0m0s"}},
		{"a longer delivery", func(s *Subscription) { s.MaxExtension = 12*time.Hour + 1 }, []string{"max_extension 12h0m0.000000001s: must be at least"}},
		{"no delivery", func(s *Subscription) { s.MaxReceive = -1 }, []string{"max_receive -1: must be 1 to 1000"}},
		{"most deliveries", func(s *Subscription) { s.MaxReceive = 1000 }, nil},
		{"more deliveries", func(s *Subscription) { s.MaxReceive = 1001 }, []string{"max_receive 1001: must be 1 to 1000"}},
		{"a negative backoff", func(s *Subscription) { s.Backoff = -1 }, []string{"backoff -1ns, max_backoff 5m0s: must be positive"}},
		{"a backoff above its maximum", func(s *Subscription) { s.Backoff = 6 * time.Minute }, []string{"backoff 6m0s, max_backoff 5m0s: must be positive, max_backoff not below backoff and at most 12h0m0s"}},
		{"a backoff at its maximum", func(s *Subscription) { s.Backoff = 5 * time.Minute }, nil},
		{"a backoff that shrinks", func(s *Subscription) { s.BackoffMultiplier = -1 }, []string{"backoff_multiplier -1: must be 1 to 10"}},
		{"a backoff that explodes", func(s *Subscription) { s.BackoffMultiplier = 11 }, []string{"backoff_multiplier 11: must be 1 to 10"}},
		{"too long a backoff", func(s *Subscription) { s.MaxBackoff = 13 * time.Hour }, []string{"max_backoff 13h0m0s: must be"}},

		{"push", func(s *Subscription) { s.Push = &Push{To: "hook", Severity: "critical", Concurrency: 1000} }, nil},
		{"push to nothing", func(s *Subscription) { s.Push = &Push{Severity: "info", Concurrency: 1} }, []string{`push.to "": name a target of subscriptions.targets, or a plugin`}},
		{"push too much", func(s *Subscription) { s.Push = &Push{To: "hook", Severity: "info", Concurrency: 1001} }, []string{"push.concurrency 1001: must be 1 to 1000"}},
		{"an unknown severity", func(s *Subscription) { s.Push = &Push{To: "hook", Severity: "page", Concurrency: 1} }, []string{`push.severity "page": use info, warning or critical`}},
		{"the longest text", func(s *Subscription) {
			s.Push = &Push{To: "hook", Severity: "info", Concurrency: 1, Text: strings.Repeat("x", 16384)}
		}, nil},
		{"longer texts", func(s *Subscription) {
			s.Push = &Push{To: "hook", Severity: "info", Concurrency: 1, Title: strings.Repeat("x", 16385), Text: strings.Repeat("x", 16386)}
		}, []string{"push.title: 16385 bytes; at most 16384 are allowed", "push.text: 16386 bytes"}},

		{"a tag of dead letters", func(s *Subscription) { s.DeadLetter = DeadLetter{Name: "0a._-Z", RetentionDays: 3650} }, nil},
		{"a tag that begins with a dot", func(s *Subscription) { s.DeadLetter.Name = ".a" }, []string{`dead_letter.name ".a": use letters, digits, ., - and _, at most 64, the first a letter or digit`}},
		{"a tag that is too long", func(s *Subscription) { s.DeadLetter.Name = long[:65] }, []string{"dead_letter.name"}},
		{"a negative retention", func(s *Subscription) { s.DeadLetter.RetentionDays = -1 }, []string{"dead_letter.retention_days -1: must be 1 to 3650"}},
		{"too long a retention", func(s *Subscription) { s.DeadLetter.RetentionDays = 3651 }, []string{"dead_letter.retention_days 3651: must be 1 to 3650"}},

		{"several problems", func(s *Subscription) {
			s.Name, s.Topics, s.Start, s.Ordering, s.MaxReceive, s.Push = "a b", nil, "now", "any", 0, &Push{}
			s.DeadLetter.RetentionDays = -5
		}, []string{"name", "topics", "start", "ordering", "max_receive", "push.to", "push.severity", "push.concurrency", "dead_letter.retention_days"}},
	} {
		s := Subscription{Name: "big", Topics: []string{"orders"}}.WithDefaults()
		tt.change(&s)
		err := s.Validate()
		var lines []string
		if err != nil {
			lines = strings.Split(err.Error(), "\n")
		}
		if len(lines) != len(tt.want) {
			t.Errorf("%s: Validate() = %v, want %d problems", tt.name, err, len(tt.want))
			continue
		}
		for _, want := range tt.want {
			if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, want) }) {
				t.Errorf("%s: Validate() = %v, want %s", tt.name, err, want)
			}
		}
	}
}

func TestSubscription_StartTime(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for start, want := range map[string]time.Time{
		"latest": created, "earliest": {}, "2025-06-07T08:09:10Z": time.Date(2025, 6, 7, 8, 9, 10, 0, time.UTC),
	} {
		s := Subscription{Start: start}
		if got, err := s.StartTime(created); err != nil || !got.Equal(want) {
			t.Errorf("StartTime() of %s = %v, %v, want %v", start, got, err, want)
		}
	}
}

func TestSubscription_Selects(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		topics, types []string
		topic, typ    string
		want          [2]bool // of topic and type
	}{
		{[]string{"orders"}, nil, "orders", "Any", [2]bool{true, true}},
		{[]string{"orders"}, nil, "orders2", "", [2]bool{false, true}},
		{[]string{"a", "orders"}, []string{"A", "B"}, "orders", "B", [2]bool{true, true}},
		{[]string{"order*"}, []string{"Order*"}, "orders", "OrderCreated", [2]bool{true, true}},
		{[]string{"order*"}, []string{"Order*"}, "order", "Order", [2]bool{true, true}},
		{[]string{"order*"}, []string{"Order*"}, "reorder", "NoOrder", [2]bool{false, false}},
		{[]string{"*.eu"}, []string{"*Created"}, "shop.eu", "OrderCreated", [2]bool{true, true}},
		{[]string{"*.eu"}, []string{"*Created"}, "shopXeu", "OrderCreated2", [2]bool{false, false}},
		{[]string{"a.b"}, []string{"a.b"}, "aXb", "aXb", [2]bool{false, false}},
		{[]string{"x*", "a.b"}, nil, "aXb", "", [2]bool{false, true}},
		{[]string{"*"}, []string{"*"}, "anything", "anything", [2]bool{true, true}},
		{[]string{"*"}, []string{"*"}, "orders", "shop/order/created", [2]bool{true, true}},
		{[]string{"*"}, []string{"shop/*"}, "orders", "shop/order/created", [2]bool{true, true}},
		{[]string{"*"}, nil, "_internal", "", [2]bool{false, true}},
		{[]string{"_in*"}, nil, "_internal", "", [2]bool{false, true}},
		{[]string{"_internal"}, nil, "_internal", "", [2]bool{true, true}},
		{[]string{"*"}, []string{"A"}, "", "", [2]bool{false, false}},
	} {
		s := Subscription{Topics: tt.topics, Types: tt.types}
		if got := [2]bool{s.SelectsTopic(tt.topic), s.SelectsType(tt.typ)}; got != tt.want {
			t.Errorf("topics %v and types %v select %q and %q: %v, want %v", tt.topics, tt.types, tt.topic, tt.typ, got, tt.want)
		}
	}
}

// Subscriptions with patterns are read with anchored expressions, the others by names.
func TestSubscription_TopicRegexps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		topics, want []string
		patterns     bool
	}{
		{[]string{"a", "b.c"}, []string{"a", "b.c"}, false},
		{[]string{"a*", "b.c"}, []string{"^a.*$", `^b\.c$`}, true},
		{[]string{"*-*"}, []string{"^.*-.*$"}, true},
	} {
		s := Subscription{Topics: tt.topics}
		if got, patterns := s.TopicRegexps(); !slices.Equal(got, tt.want) || patterns != tt.patterns {
			t.Errorf("TopicRegexps() of %v = %v, %v, want %v, %v", tt.topics, got, patterns, tt.want, tt.patterns)
		}
	}
}

// A subscription that is created again is another one, with the same names.
func TestSubscription_Names(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_767_323_045_000)
	old, again := Subscription{Name: "big", CreatedAt: at}, Subscription{Name: "big", CreatedAt: at.Add(time.Millisecond)}
	if old.Incarnation() == again.Incarnation() || !strings.HasPrefix(old.Incarnation(), "big.") || old.Incarnation() != "big.mjwaid1k" {
		t.Errorf("the incarnations are %s and %s", old.Incarnation(), again.Incarnation())
	}
	if got := old.DeadLetterTable(); got != "subscription.big" {
		t.Errorf("DeadLetterTable() = %s", got)
	}
}

// With push delivery messages are not received, and leases not released.
func TestSubscription_Push(t *testing.T) {
	t.Parallel()
	pull, push := Subscription{Name: "a"}, Subscription{Name: "a", Push: &Push{To: "hook"}}
	for name, check := range map[string]func(*Subscription) error{"receive": (*Subscription).CheckReceive, "release": (*Subscription).CheckEndLease} {
		if err := check(&pull); err != nil {
			t.Errorf("%s without push: %v", name, err)
		}
		if err := check(&push); err == nil || !strings.HasPrefix(err.Error(), `push: subscription "a" delivers its messages to hook; `) {
			t.Errorf("%s with push: %v", name, err)
		}
	}
}

func TestNewLeasePage(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	all := []Lease{{ID: "c:0:0:1", ReceivedAt: at}, {ID: "a:0:0:1", ReceivedAt: at.Add(1)}, {ID: "b:0:0:1", ReceivedAt: at}, {ID: "a:0:0:2", ReceivedAt: at.Add(time.Hour)}}
	// pages follows the cursors of one instance, or of two that have a part each.
	pages := func(limit int, parts ...[]Lease) (text string) {
		for cursor := ""; ; {
			var list []LeasePage
			for _, part := range parts {
				p, err := NewLeasePage(slices.Clone(part), cursor, limit)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, p)
			}
			p, err := list[0].Merge(list[1:], limit)
			if err != nil || len(p.Leases) > limit {
				t.Fatalf("%d leases, %v", len(p.Leases), err)
			}
			for _, l := range p.Leases {
				text += l.ID[:1]
			}
			if text += "|"; p.Next == "" {
				return text
			}
			cursor = p.Next
		}
	}
	for limit, want := range map[int]string{1: "b|c|a|a|", 2: "bc|aa|", 3: "bca|a|", 4: "bcaa|", MaxLeases: "bcaa|"} {
		for name, got := range map[string]string{
			"one instance": pages(limit, all), "two": pages(limit, all[:2], all[2:]), "an empty one": pages(limit, nil, all), "three": pages(limit, all[:1], all[1:3], all[3:]),
		} {
			if got != want {
				t.Errorf("pages of %d, %s: %s, want %s", limit, name, got, want)
			}
		}
	}
	for _, limit := range []int{-1, 0, MaxLeases + 1} {
		if _, err := NewLeasePage(nil, "", limit); err == nil || !strings.HasPrefix(err.Error(), "limit ") {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	for _, cursor := range []string{"x", "a:0:0:1", "9999999999999999999:a:0:0:1"} {
		if _, err := NewLeasePage(nil, cursor, 1); err == nil || !strings.HasPrefix(err.Error(), "cursor ") {
			t.Errorf("cursor %s: %v", cursor, err)
		}
	}
	lost := LeasePage{Unknown: []string{"i2"}}
	if p, err := lost.Merge([]LeasePage{{Leases: all[:1]}, lost}, 9); err != nil || len(p.Leases) != 1 || p.Next != "" || !slices.Equal(p.Unknown, []string{"i2", "i2"}) {
		t.Errorf("without two instances %+v, %v", p, err)
	}
}
