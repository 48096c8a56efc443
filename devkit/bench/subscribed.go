package bench

import (
	"fmt"
)

// SubscriptionReport is the result of a benchmark of subscriptions.
type SubscriptionReport struct {
	Head
	Median SubscriptionRun `json:"median"`
	// Wrong is the number of messages of all runs that were lost, or delivered again.
	Wrong int64 `json:"wrong"`
}

// SubscriptionRun is one run.
type SubscriptionRun struct {
	// Alone is a consumer group of franz-go that only reads the records. Group commits each
	// batch of 100 before it reads the next one. Consumed receives and acknowledges the same
	// records in batches of 100 over HTTP.
	Alone    Rate `json:"alone"`
	Group    Rate `json:"group"`
	Consumed Rate `json:"consumed"`
	// Consumer is the cost of the service during Consumed.
	Consumer Cost `json:"consumer"`
	// Delivered is the time from when a message was to be published until a long poll
	// returned it.
	Delivered Latency `json:"delivered"`
	// Pushed is the rate of calls of a webhook by push delivery, and Pusher the cost of the
	// service meanwhile.
	Pushed Rate `json:"pushed"`
	Pusher Cost `json:"pusher"`
	// EmptyMB and WaitingMB are the memory of the service without messages, and while
	// Waiting messages wait.
	Waiting   int64   `json:"waiting"`
	EmptyMB   float64 `json:"empty_mb"`
	WaitingMB float64 `json:"waiting_mb"`
	// Others is the number of processors that other processes kept busy.
	Others float64 `json:"others"`
}

func (r *SubscriptionReport) tables() []table {
	m := &r.Median
	return []table{{
		title: fmt.Sprintf("Messages of %d bytes", r.Payload),
		rows: [][]string{
			{"", "messages/s", "of the group", "p50", "p95", "p99", "its CPU", "its memory"},
			{"consumer group of franz-go that only reads", fmt.Sprintf("%.0f", m.Alone.PerSecond), "", "", "", "", "", ""},
			{"consumer group of franz-go, each batch of 100 committed", fmt.Sprintf("%.0f", m.Group.PerSecond), "100 %", "", "", "", "", ""},
			{"receive and acknowledge, batches of 100 over HTTP", fmt.Sprintf("%.0f", m.Consumed.PerSecond), fmt.Sprintf("%.0f %%", 100*m.Share()), "", "", "", cores(m.Consumer), megabytes(m.Consumer)},
			{"publish to long poll", fmt.Sprintf("%.0f", r.Rate), "", milliseconds(m.Delivered.P50), milliseconds(m.Delivered.P95), milliseconds(m.Delivered.P99), "", ""},
			{"push to a webhook", fmt.Sprintf("%.0f", m.Pushed.PerSecond), "", "", "", "", cores(m.Pusher), megabytes(m.Pusher)},
			{fmt.Sprintf("%d messages wait", m.Waiting), "", "", "", "", "", "", fmt.Sprintf("%.0f MB, %.0f MB without", m.WaitingMB, m.EmptyMB)},
		},
	}}
}

func milliseconds(v float64) string { return fmt.Sprintf("%.1f ms", v) }

// Share returns the rate of Consumed as a part of that of Group.
func (r *SubscriptionRun) Share() float64 { return r.Consumed.PerSecond / max(r.Group.PerSecond, 1e-9) }

// sentences report to which degree the goals are met.
func (r *SubscriptionReport) sentences() []string {
	m := &r.Median
	return []string{
		fmt.Sprintf("Over HTTP %.0f messages/s are received and acknowledged (the goal is 20,000): %.0f %% of the group that commits as often (the goal is 40 %%).", m.Consumed.PerSecond, 100*m.Share()),
		fmt.Sprintf("At %.0f/s the p95 from publication to a long poll is %.1f ms (the goal is 10 ms).", r.Rate, m.Delivered.P95),
		fmt.Sprintf("A local webhook is called %.0f times per second (the goal is 5,000).", m.Pushed.PerSecond),
		fmt.Sprintf("%d waiting messages cost %.0f MB of memory (the goal for a million is 50 MB).", m.Waiting, m.WaitingMB-m.EmptyMB),
	}
}

func (r *SubscriptionReport) how() string {
	return r.Head.how(r.Median.Others, "load and consumers")
}
