package bench

import (
	"fmt"
	"strconv"
	"time"
)

// waits is the latency since stored from which an event counts as one that waited.
const waits = time.Second

// Interval is the result for a part of a sustained load.
type Interval struct {
	// End is the time from the end of the warm-up to the end of the interval.
	End float64 `json:"end_seconds"`
	// Stored is the number of events that the database confirmed, per second.
	Stored float64 `json:"stored_per_second"`
	// Intended and Committed are the latencies, in ms, of the events that were to be sent
	// in the interval: from then, and from when the database had confirmed them.
	Intended  Latency `json:"intended_ms"`
	Committed Latency `json:"committed_ms"`
	// Relay is the cost of all relay processes, Load that of load and consumer.
	Relay    Cost    `json:"relay"`
	Load     Cost    `json:"load"`
	Database Cost    `json:"database"`
	Broker   Cost    `json:"broker"`
	Queries  float64 `json:"queries_per_second"`
	// ResidentMB is the memory of all relay processes, LargestMB that of the largest one,
	// in 10^6 bytes.
	ResidentMB float64 `json:"resident_mb"`
	LargestMB  float64 `json:"largest_mb"`
	// Fresh is the number of ids in the dedup indexes whose rows the sweep reader has not
	// read, FreshLimit its limit.
	Fresh      int64 `json:"dedup_fresh_events"`
	FreshLimit int64 `json:"dedup_fresh_limit"`
}

// Intervals returns the first n intervals of a length, from the end of the warm-up on, with
// their events.
func (l *Load) Intervals(a *Arrivals, length time.Duration, n int) []Interval {
	type part struct {
		stored              int64
		intended, committed *histogram
	}
	parts := make([]part, n)
	for k := range parts {
		parts[k].intended, parts[k].committed = newHistogram(), newHistogram()
	}
	// partAt returns the part at a time since the load began, nil if there is none.
	partAt := func(d time.Duration) *part {
		if k := (d - warmUp) / length; d >= warmUp && k < time.Duration(n) {
			return &parts[k]
		}
		return nil
	}
	for i := range int64(len(l.committed)) {
		at := time.Duration(l.committed[i].Load())
		if at == 0 {
			continue // not stored
		}
		if p := partAt(at); p != nil {
			p.stored++
		}
		intended, committed, ok := l.latency(a, i)
		if p := partAt(l.sendTime(i)); p != nil && ok {
			record(p.intended, intended)
			record(p.committed, committed)
		}
	}
	out := make([]Interval, n)
	for k, p := range parts {
		out[k] = Interval{
			End: (time.Duration(k+1) * length).Seconds(), Stored: float64(p.stored) / length.Seconds(),
			Intended: newLatency(p.intended), Committed: newLatency(p.committed),
		}
	}
	return out
}

// Takeover is the result of the kill of a relay process under load.
type Takeover struct {
	// First is the time from the kill until a consumer had the first record of each shard
	// from another process, or from the same one that was started again.
	First float64 `json:"first_publish_seconds"`
	// Waited is the number of events that came after the kill, and more than a second after
	// they were stored; Longest is the longest of these times, Recovered the time from the
	// kill until the last of them came.
	Waited    int64   `json:"waited_events"`
	Longest   float64 `json:"longest_seconds"`
	Recovered float64 `json:"recovered_seconds"`
	// After is the time from the kill to the end of the load.
	After float64 `json:"load_seconds"`
	// ReadBack is the number of events that the new owners read back from the topic,
	// Received the number of bytes that their clients received from the broker from the
	// kill on.
	ReadBack int64 `json:"read_back_events"`
	Received int64 `json:"received_bytes"`
}

// Takeover returns the result of a kill, without the read-back.
func (l *Load) Takeover(a *Arrivals, killed time.Time) Takeover {
	t := Takeover{After: l.began.Add(l.Length()).Sub(killed).Seconds()}
	for _, first := range a.Producers() {
		t.First = max(t.First, first.Sub(killed).Seconds())
	}
	for i := range int64(len(l.committed)) {
		_, committed, ok := l.latency(a, i)
		at, _ := a.Since(i)
		if !ok || l.committed[i].Load() == 0 || !at.After(killed) || committed <= waits {
			continue
		}
		t.Waited++
		t.Longest = max(t.Longest, committed.Seconds())
		t.Recovered = max(t.Recovered, at.Sub(killed).Seconds())
	}
	return t
}

// SustainedReport is the result of a load that lasts.
type SustainedReport struct {
	Head
	// Batch is the number of events of one write.
	Batch int `json:"events_per_write"`
	// Processes is the number of relay processes, Shards the number of shards.
	Processes int        `json:"processes"`
	Shards    int        `json:"shards"`
	Intervals []Interval `json:"intervals"`
	Takeover  Takeover   `json:"takeover"`
	// Others is how many processors the rest of the machine kept busy.
	Others float64 `json:"others_cores"`
	Counts Counts  `json:"counts"`
	// Repeated is the number of writes that failed because the database was too slow, and were
	// repeated; RepeatedBecause the error of one of them.
	Repeated        int64  `json:"repeated_writes"`
	RepeatedBecause string `json:"repeated_because,omitempty"`
}

func (r *SustainedReport) how() string {
	how := r.Head.how(r.Others, "load and consumer")
	if r.Embedded {
		how += " The engines keep their data on disk."
	}
	return how
}

func (r *SustainedReport) tables() []table {
	relays := "1 relay process"
	if r.Processes > 1 {
		relays = fmt.Sprintf("%d relay processes", r.Processes)
	}
	writes := "each written alone"
	if r.Batch > 1 {
		writes = fmt.Sprintf("%d in one write", r.Batch)
	}
	t := table{
		title: fmt.Sprintf("Latency in ms since stored at %g events/s, %d bytes each, %s; %s with %s", r.Rate, r.Payload, writes, relays, CountShards(r.Shards)),
		rows: [][]string{{
			"until", "stored/s", "p50", "p95", "p99", "max", "since to be sent p99", "relay CPU", "relay memory", "largest process", "database CPU", "broker CPU", "load CPU", "queries/s", "ids in the dedup index",
		}},
	}
	for i := range r.Intervals {
		v := &r.Intervals[i]
		index := strconv.FormatInt(v.Fresh, 10)
		if v.FreshLimit > 0 {
			index += fmt.Sprintf(" (%.0f %%)", 100*float64(v.Fresh)/float64(v.FreshLimit))
		}
		t.rows = append(t.rows, []string{
			seconds(v.End).String(), fmt.Sprintf("%.0f", v.Stored),
			millis(v.Committed.P50), millis(v.Committed.P95), millis(v.Committed.P99), millis(v.Committed.Max), millis(v.Intended.P99),
			cores(v.Relay), fmt.Sprintf("%.0f MB", v.ResidentMB), fmt.Sprintf("%.0f MB", v.LargestMB),
			cores(v.Database), cores(v.Broker), cores(v.Load), fmt.Sprintf("%.0f", v.Queries), index,
		})
	}
	return []table{t}
}

// CountShards returns a number of shards in words.
func CountShards(n int) string {
	if n == 1 {
		return "1 shard"
	}
	return fmt.Sprintf("%d shards", n)
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond)
}

func (r *SustainedReport) sentences() []string {
	t, c := &r.Takeover, r.Counts
	killed := fmt.Sprintf("The relay was killed under load and started again: first event published after %.2f s.", t.First)
	if r.Processes > 1 {
		killed = fmt.Sprintf("One of %d relays was killed under load, and the others took over: first event of each of its shards published after %.2f s.", r.Processes, t.First)
	}
	waited := fmt.Sprintf("No event came more than %g s after it was stored.", waits.Seconds())
	if t.Waited > 0 {
		waited = fmt.Sprintf("%d events came more than %g s after they were stored, at most %.2f s; the last of them %.2f s after the kill", t.Waited, waits.Seconds(), t.Longest, t.Recovered)
		if t.Recovered > t.After {
			waited += fmt.Sprintf(", when the load had ended (%.1f s after the kill)", t.After)
		}
		waited += "."
	}
	out := []string{
		killed,
		waited,
		fmt.Sprintf("Read back from the topic: %d events; %.1f MB received from the broker.", t.ReadBack, float64(t.Received)/1e6),
		fmt.Sprintf("All of the load: %d events stored, %d consumed, %d double, %d out of order.", c.Written, c.Consumed, c.Doubles, c.Disorder),
	}
	if r.Repeated > 0 {
		out = append(out, fmt.Sprintf("The database was too slow: %d writes failed and were repeated, one because of: %s", r.Repeated, r.RepeatedBecause))
	}
	return out
}
