package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// form bounds the structure of a body.
var form = jsonform.Bounds{Depth: 3, Members: 32, Items: subscriptions.MaxReceipts}

// maxBody bounds a body: 1,000 items with the longest receipt and reason, or fewer with details.
const maxBody = 4 << 20

// wantDuration describes a valid duration.
const wantDuration = "a duration such as 30s or 5m"

// fields are the members of a body that are not decoded yet, and its errors.
type fields struct {
	raw map[string]json.RawMessage
	bad jsonform.InvalidError
	at  string // path of the object, with a dot
}

// decodeBody calls read with the members of a body that is a JSON object; an empty body is
// an empty object. read takes each member; others are errors. The error lists every bad
// field.
func decodeBody(body []byte, read func(*fields)) error {
	f := fields{raw: map[string]json.RawMessage{}}
	if len(bytes.TrimSpace(body)) > 0 {
		if err := jsonform.Check(body, form); err != nil {
			return err
		}
		if err := jsonform.RefuseNull(body); err != nil {
			return err
		}
		// Check has refused duplicates.
		if jsonv2.Unmarshal(body, &f.raw, jsontext.AllowDuplicateNames(true)) != nil || f.raw == nil {
			return jsonform.Invalid("", "must be a JSON object")
		}
	}
	read(&f)
	jsonform.Rest(f.raw, &f.bad, f.at)
	return f.bad.OrNil()
}

func take[T any](f *fields, name, want string, dst *T) (there bool) {
	raw, there := f.raw[name]
	jsonform.Take(f.raw, &f.bad, f.at, name, want, dst)
	return there && !jsonform.IsNull(raw)
}

func (f *fields) text(name string, dst *string) { take(f, name, jsonform.WantText, dst) }

func (f *fields) number(name string, from, to int, dst *int) {
	before := len(f.bad.Fields)
	if take(f, name, "a whole number", dst) && len(f.bad.Fields) == before && (*dst < from || *dst > to) {
		f.bad.Add(f.at+name, fmt.Sprintf("must be %d to %d", from, to))
	}
}

// duration takes a duration. there reports a valid one.
func (f *fields) duration(name string, from, to time.Duration, dst *time.Duration) (there bool) {
	var text httpapi.Duration
	before := len(f.bad.Fields)
	if !take(f, name, wantDuration, &text) || len(f.bad.Fields) > before {
		return false
	}
	d, ok := text.Parse()
	switch {
	case !ok:
		f.bad.Add(f.at+name, "must be "+wantDuration)
		return false
	case d < from || d > to:
		f.bad.Add(f.at+name, fmt.Sprintf("must be %s to %s", short(from), short(to)))
		return false
	}
	*dst = d
	return true
}

var consumerName = regexp.MustCompile(`^[a-zA-Z0-9._:@-]{1,100}$`)

// decodeReceive decodes the body of receive. exact requests the bytes beside the texts.
func decodeReceive(body []byte) (r subscriptions.Receive, exact bool, err error) {
	r.Max = defaultMax
	err = decodeBody(body, func(f *fields) {
		f.number("max", 1, subscriptions.MaxMessages, &r.Max)
		f.number("max_per_key", 1, subscriptions.MaxMessages, &r.MaxPerKey)
		f.duration("wait", 0, subscriptions.MaxWait, &r.Wait)
		if f.text("consumer", &r.Consumer); r.Consumer != "" && !consumerName.MatchString(r.Consumer) {
			f.bad.Add("consumer", "must be 1 to 100 letters, digits, ., _, :, @ and -")
		}
		take(f, "auto_ack", "true or false", &r.AutoAck)
		take(f, "exact", "true or false", &exact)
		f.duration("visibility_timeout", subscriptions.MinVisibilityTimeout, subscriptions.MaxVisibilityTimeout, &r.VisibilityTimeout)
	})
	return r, exact, err
}

// decodeSettle decodes the body of an action.
func decodeSettle(action subscriptions.Action, body []byte) ([]subscriptions.Settle, error) {
	var out []subscriptions.Settle
	err := decodeBody(body, func(f *fields) { out = f.settle(action) })
	return out, err
}

// settle takes receipts with a common delay and reason, or items.
func (f *fields) settle(action subscriptions.Action) []subscriptions.Settle {
	var receipts []string
	var items []json.RawMessage
	all := subscriptions.Settle{Action: action}
	_, hasReceipts := f.raw["receipts"]
	take(f, "receipts", "a list of receipts", &receipts)
	f.options(&all)
	if varies(action) {
		take(f, "items", "a list of objects", &items)
	}
	switch n := max(len(receipts), len(items)); {
	case hasReceipts && len(items) > 0:
		f.bad.Add(f.at+"items", "must be omitted beside receipts")
	case n == 0 && len(f.bad.Fields) == 0:
		f.bad.Add(f.at+"receipts", "is required: the receipts of 1 to 1,000 messages")
	case n > subscriptions.MaxReceipts: // jsonform.Check has refused them
		f.bad.Add(f.at+"receipts", fmt.Sprintf("must have at most %d items", subscriptions.MaxReceipts))
	}
	out := make([]subscriptions.Settle, 0, max(len(receipts), len(items)))
	for _, r := range receipts {
		all.Receipt = r
		out = append(out, all)
	}
	for i, raw := range items {
		if f.bad.Full() {
			break
		}
		one := fields{at: fmt.Sprintf("%sitems[%d].", f.at, i)}
		s := subscriptions.Settle{Action: action, Delay: all.Delay, Reason: all.Reason, Details: all.Details}
		if json.Unmarshal(raw, &one.raw) != nil || one.raw == nil {
			f.bad.Add(one.at[:len(one.at)-1], "must be an object with a receipt")
			continue
		}
		one.text("receipt", &s.Receipt)
		one.options(&s)
		jsonform.Rest(one.raw, &one.bad, one.at)
		f.bad.Merge(&one.bad)
		out = append(out, s)
	}
	return out
}

// options takes delay and reason where the action of s has them.
func (f *fields) options(s *subscriptions.Settle) {
	switch s.Action {
	case subscriptions.ActionNack:
		if f.duration("delay", 0, subscriptions.MaxDelay, &s.Delay) {
			// 0 means the backoff of the subscription, which is that of an omitted delay.
			s.Delay = max(s.Delay, time.Millisecond)
		}
	case subscriptions.ActionExtend:
		f.duration("delay", time.Second, subscriptions.MaxDelay, &s.Delay)
	}
	if hasReason(s.Action) {
		f.text("reason", &s.Reason)
		f.text("details", &s.Details)
		s.Reason, s.Details = clip(s.Reason, maxReason), clip(s.Details, subscriptions.MaxDetails)
	}
}

func hasReason(a subscriptions.Action) bool {
	return a == subscriptions.ActionNack || a == subscriptions.ActionReject
}

// varies reports whether the receipts of a request may have options of their own.
func varies(a subscriptions.Action) bool { return hasReason(a) || a == subscriptions.ActionExtend }

// maxReason bounds the reason of a dead letter, in bytes.
const maxReason = 2000

// clip bounds a text at the boundary of a character.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit
	for end > 0 && s[end]&0xC0 == 0x80 {
		end--
	}
	return s[:end]
}

// decodeSubscription decodes the body of PUT. The members that GET adds are ignored, so
// that its response can be changed and sent back.
func decodeSubscription(name string, body []byte) (subscriptions.Subscription, error) {
	s := subscriptions.Subscription{Name: name}
	err := decodeBody(body, func(f *fields) {
		var own string
		if f.text("name", &own); own != "" && own != name {
			f.bad.Add("name", "must be that of the path, or omitted")
		}
		take(f, "topics", "a list of names and patterns", &s.Topics)
		take(f, "types", "a list of event types and patterns", &s.Types)
		f.text("filter", &s.Filter)
		f.text("transform", &s.Transform)
		f.text("start", &s.Start)
		f.text("ordering", (*string)(&s.Ordering))
		f.duration("visibility_timeout", subscriptions.MinVisibilityTimeout, subscriptions.MaxVisibilityTimeout, &s.VisibilityTimeout)
		f.duration("max_extension", subscriptions.MinVisibilityTimeout, subscriptions.MaxVisibilityTimeout, &s.MaxExtension)
		f.number("max_receive", 1, subscriptions.MaxMaxReceive, &s.MaxReceive)
		f.duration("backoff", time.Millisecond, subscriptions.MaxVisibilityTimeout, &s.Backoff)
		f.number("backoff_multiplier", 1, subscriptions.MaxBackoffMultiplier, &s.BackoffMultiplier)
		f.duration("max_backoff", time.Millisecond, subscriptions.MaxVisibilityTimeout, &s.MaxBackoff)
		s.Push = f.push()
		s.DeadLetter = f.deadLetter()
		s.KeepPaused = !take(f, "paused", "true or false", &s.Paused)
		var ignored subscriptionInput
		if take(f, "version", "a whole number", &s.Version); s.Version < 0 {
			f.bad.Add("version", "must be the version that is replaced, or omitted")
		}
		take(f, "created_at", jsonform.WantTime, &ignored.CreatedAt)
		take(f, "changed_at", jsonform.WantTime, &ignored.ChangedAt)
		f.text("changed_by", &ignored.ChangedBy)
	})
	return s, err
}

// push takes the push delivery of a subscription; nil without it.
func (f *fields) push() *subscriptions.Push {
	var raw map[string]json.RawMessage
	if !take(f, "push", "an object with to", &raw) {
		return nil
	}
	one, p := fields{raw: raw, at: "push."}, &subscriptions.Push{}
	one.text("to", &p.To)
	one.text("title", &p.Title)
	one.text("text", &p.Text)
	one.text("severity", &p.Severity)
	one.number("concurrency", 1, subscriptions.MaxConcurrency, &p.Concurrency)
	jsonform.Rest(one.raw, &one.bad, one.at)
	f.bad.Merge(&one.bad)
	return p
}

// deadLetter takes name and retention of the dead letters of a subscription.
func (f *fields) deadLetter() (d subscriptions.DeadLetter) {
	var raw map[string]json.RawMessage
	if !take(f, "dead_letter", "an object with name or retention_days", &raw) {
		return d
	}
	one := fields{raw: raw, at: "dead_letter."}
	one.text("name", &d.Name)
	one.number("retention_days", 1, subscriptions.MaxRetentionDays, &d.RetentionDays)
	jsonform.Rest(one.raw, &one.bad, one.at)
	f.bad.Merge(&one.bad)
	return d
}

func decodeSeek(body []byte) (subscriptions.Seek, error) {
	s := subscriptions.Seek{Partition: -1}
	err := decodeBody(body, func(f *fields) {
		f.text("to", &s.To)
		f.text("topic", &s.Topic)
		partitioned := take(f, "partition", "a whole number", &s.Partition)
		placed := take(f, "offset", "a whole number", &s.Offset)
		_, err := time.Parse(time.RFC3339, s.To)
		switch {
		case len(f.bad.Fields) > 0:
		case err != nil && !slices.Contains([]string{subscriptions.StartLatest, subscriptions.StartEarliest, "offset"}, s.To):
			f.bad.Add("to", "must be latest, earliest, offset, or a time such as 2026-01-02T15:04:05Z")
		case s.To == "offset" && (!placed || s.Topic == "" || !partitioned):
			f.bad.Add("offset", "must be set, with topic and partition, if to is offset")
		case s.To != "offset" && placed:
			f.bad.Add("offset", "must be omitted unless to is offset")
		case partitioned && (s.Partition < 0 || s.Topic == ""):
			f.bad.Add("partition", "must be from 0, with its topic")
		case s.Offset < 0:
			f.bad.Add("offset", "must be from 0")
		}
	})
	return s, err
}

func decodePurge(body []byte) (subscriptions.Purge, error) {
	p := subscriptions.Purge{DryRun: true}
	err := decodeBody(body, func(f *fields) {
		take(f, "until", jsonform.WantTime, &p.Before)
		take(f, "dry_run", "true or false", &p.DryRun)
	})
	return p, err
}

// short writes a duration without units of zero: 12h instead of 12h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if d >= time.Minute && d%time.Minute == 0 {
		s = s[:len(s)-len("0s")]
	}
	if d >= time.Hour && d%time.Hour == 0 {
		s = s[:len(s)-len("0m")]
	}
	return s
}
