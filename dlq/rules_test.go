package dlq

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

func mustRules(t *testing.T, rules ...StrategyRule) *StrategyRules {
	t.Helper()
	r, err := NewStrategyRules(rules)
	if err != nil {
		t.Fatalf("NewStrategyRules() error = %v", err)
	}
	return r
}

// The first rule that matches decides, and there always is one.
func TestRules_FirstMatchWins(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 30, 0, 0, time.UTC)
	rules := mustRules(t,
		StrategyRule{Name: "payments", EventTypes: []string{"Payment*"}, ErrorClasses: []string{"attempts_used"}, Strategy: StrategyConditional, Conditions: []string{ConditionCPU}},
		StrategyRule{Name: "old", OlderThan: 24 * time.Hour, Strategy: StrategyManual},
		StrategyRule{Name: "stubborn", FailedReplays: 3, ErrorClasses: []string{"attempts_used"}, Strategy: StrategyScheduled, TimeZone: "Europe/Berlin"},
		StrategyRule{Name: "shop", Tables: []string{"shop.*"}, AggregateTypes: []string{"basket"}, Strategy: StrategyImmediate, Delays: []time.Duration{10 * time.Second, time.Minute}},
	)
	minutes := func(n int) time.Time { return now.Add(time.Duration(n) * time.Minute) }
	fresh := now.Add(-time.Minute)
	for name, tt := range map[string]struct {
		s        Subject
		rule     string
		strategy string
		next     time.Time
	}{
		"a type":                {Subject{ErrorClass: "attempts_used", EventType: "PaymentTaken", FirstFailedAt: fresh}, "payments", StrategyConditional, minutes(1)},
		"a type, another class": {Subject{ErrorClass: "refused", EventType: "PaymentTaken", FirstFailedAt: fresh}, "needs-a-person", StrategyManual, time.Time{}},
		"the first of two":      {Subject{ErrorClass: "attempts_used", EventType: "PaymentTaken", FirstFailedAt: now.Add(-48 * time.Hour), FailedReplays: 9}, "payments", StrategyConditional, minutes(60)},
		"age":                   {Subject{ErrorClass: "attempts_used", FirstFailedAt: now.Add(-24 * time.Hour)}, "old", StrategyManual, time.Time{}},
		"escalation":            {Subject{ErrorClass: "attempts_used", FirstFailedAt: fresh, FailedReplays: 3}, "stubborn", StrategyScheduled, time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC)},
		"table and aggregate":   {Subject{ErrorClass: "attempts_used", Table: "shop.events", AggregateType: "basket", FirstFailedAt: fresh, FailedReplays: 1}, "shop", StrategyImmediate, minutes(1)},
		"table alone":           {Subject{ErrorClass: "attempts_used", Table: "shop.events", FirstFailedAt: fresh, FailedReplays: 1}, "transient", StrategyImmediate, minutes(5)},

		"default: outage":        {Subject{ErrorClass: "breaker_open", FirstFailedAt: fresh}, "breaker-open", StrategyBreakerClose, time.Time{}},
		"default: quota":         {Subject{ErrorClass: "attempts_used", ErrorCode: "THROTTLING_QUOTA_EXCEEDED", FirstFailedAt: fresh}, "quota", StrategyScheduled, time.Date(2026, 11, 23, 2, 0, 0, 0, time.UTC)},
		"default: replicas":      {Subject{ErrorClass: "attempts_used", ErrorCode: "NOT_ENOUGH_REPLICAS", FirstFailedAt: fresh}, "broker-unwell", StrategyConditional, minutes(1)},
		"default: transient":     {Subject{ErrorClass: "attempts_used", FirstFailedAt: fresh}, "transient", StrategyImmediate, minutes(1)},
		"default: no class":      {Subject{FirstFailedAt: fresh}, "needs-a-person", StrategyManual, time.Time{}},
		"default: fifth failure": {Subject{ErrorClass: "attempts_used", FailedReplays: 2, FirstFailedAt: fresh}, "transient", StrategyImmediate, minutes(15)},
	} {
		c := rules.Choose(&tt.s, now)
		if c.Rule != tt.rule || c.Strategy != tt.strategy || !c.NextAttempt.Equal(tt.next) {
			t.Errorf("%s: Choose() = %+v, want rule %s, %s, next %s", name, c, tt.rule, tt.strategy, tt.next)
		}
	}
	if c := rules.Conditions("payments"); len(c) != 1 || c[0] != ConditionCPU {
		t.Errorf("Conditions(payments) = %v, want cpu", c)
	}
	if c := rules.Conditions("broker-unwell"); len(c) != len(Conditions) {
		t.Errorf("Conditions(broker-unwell) = %v, want all", c)
	}
}

func TestRules_Limits(t *testing.T) {
	t.Parallel()
	rules := mustRules(t,
		StrategyRule{Name: "i", ErrorClasses: []string{"i"}, Strategy: StrategyImmediate},
		StrategyRule{Name: "c", ErrorClasses: []string{"c"}, Strategy: StrategyConditional},
		StrategyRule{Name: "own", ErrorClasses: []string{"o"}, Strategy: StrategyScheduled, MaxReplays: 9, SameError: 4},
		StrategyRule{Name: "none", ErrorClasses: []string{"n"}, Strategy: StrategyScheduled, SameError: -1},
		StrategyRule{Name: "transient", ErrorClasses: []string{"attempts_used"}, Strategy: StrategyManual}, // takes the place of a default one
	)
	for class, want := range map[string]Choice{
		"i": {MaxReplays: 5}, "c": {MaxReplays: 5, SameError: 3}, "o": {MaxReplays: 9, SameError: 4}, "n": {MaxReplays: 5},
	} {
		if c := rules.Choose(&Subject{ErrorClass: class}, time.Now()); c.MaxReplays != want.MaxReplays || c.SameError != want.SameError {
			t.Errorf("class %s: limits %d and %d, want %d and %d", class, c.MaxReplays, c.SameError, want.MaxReplays, want.SameError)
		}
	}
	if c := rules.Choose(&Subject{ErrorClass: "attempts_used"}, time.Now()); c.Strategy != StrategyManual {
		t.Errorf("Choose() = %+v, want the rule that takes the place of the default one", c)
	}
}

// The error of an invalid rule contains its name and the fix.
func TestRules_InvalidOnesAreNamed(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]StrategyRule{
		`rule number 1: name ""`: {Strategy: StrategyManual},
		`rule a: strategy "soon": use one of [immediate scheduled co`:                            {Name: "a", Strategy: "soon"},
		`rule a: strategy "follow"`:                                                              {Name: "a", Strategy: StrategyFollow},
		`rule a: event_types: "[" is not a pattern`:                                              {Name: "a", Strategy: StrategyManual, EventTypes: []string{"["}},
		`rule a: windows: "0 26 * * *" is not a cron expression`:                                 {Name: "a", Strategy: StrategyScheduled, Windows: []string{"0 26 * * *"}},
		`rule a: windows: "0 2 30 2 *" never occurs`:                                             {Name: "a", Strategy: StrategyScheduled, Windows: []string{"0 2 30 2 *"}},
		`rule a: time_zone: unknown zone "Berlin"`:                                               {Name: "a", Strategy: StrategyScheduled, TimeZone: "Berlin"},
		`rule a: windows: "CRON_TZ=Asia/Tokyo 0 2 * * *" has a time zone: write it in time_zone`: {Name: "a", Strategy: StrategyScheduled, Windows: []string{"CRON_TZ=Asia/Tokyo 0 2 * * *"}},
		`rule a: windows: "TZ=UTC 0 2 * * *" has a time zone`:                                    {Name: "a", Strategy: StrategyScheduled, Windows: []string{"TZ=UTC 0 2 * * *"}},
		`rule a: window_length 1s is not between 1m`:                                             {Name: "a", Strategy: StrategyScheduled, WindowLength: time.Second},
		`rule a: windows is for strategy scheduled: remove it`:                                   {Name: "a", Strategy: StrategyManual, Windows: []string{"0 2 * * *"}},
		`rule a: conditions: unknown condition "moon"`:                                           {Name: "a", Strategy: StrategyConditional, Conditions: []string{"moon"}},
		`rule a: delays: 1ms is not between 1s and 720h`:                                         {Name: "a", Strategy: StrategyImmediate, Delays: []time.Duration{time.Millisecond}},
		`rule a: max_replays -1 is not between 1 and 1000`:                                       {Name: "a", Strategy: StrategyImmediate, MaxReplays: -1},
		`rule a: same_error 1 is not between 2 and 1000`:                                         {Name: "a", Strategy: StrategyScheduled, SameError: 1},
		`rule a: older_than -1s is negative`:                                                     {Name: "a", Strategy: StrategyManual, OlderThan: -time.Second},
	} {
		if _, err := NewStrategyRules([]StrategyRule{r}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewStrategyRules(%+v) error = %v, want %q", r, err, want)
		}
	}
	twice := StrategyRule{Name: "a", Strategy: StrategyManual}
	if _, err := NewStrategyRules([]StrategyRule{twice, twice}); err == nil || !strings.Contains(err.Error(), "not unique") {
		t.Errorf("NewStrategyRules(twice) error = %v", err)
	}
}

// Around each change of an offset, the next beginning is the first minute whose wall time the
// expression selects, also if midnight does not exist on that day.
func TestSchedule_AsMinuteByMinute(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"Europe/Berlin", "Africa/Cairo", "America/Santiago", "Australia/Lord_Howe", "America/New_York"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2028; day = day.Add(24 * time.Hour) {
			_, before := day.In(zone).Zone()
			_, after := day.Add(24 * time.Hour).In(zone).Zone()
			if before == after {
				continue
			}
			first := day.Add(-50 * time.Hour)
			walls := make(map[string]bool)
			var wall []string // by the minute; empty for one that is repeated
			for m := range 100 * 60 {
				text := first.Add(time.Duration(m) * time.Minute).In(zone).Format("4 15 2 1 1")
				text = text[:len(text)-2] + " " + strconv.Itoa(int(first.Add(time.Duration(m)*time.Minute).In(zone).Weekday()))
				if walls[text] {
					text = ""
				}
				walls[text] = true
				wall = append(wall, text)
			}
			local := day.Add(24 * time.Hour).In(zone)
			for _, hour := range []int{0, 1, 2, 3, 4, 12} {
				for _, spec := range []string{
					fmt.Sprintf("0 %d %d %d *", hour, local.Day(), int(local.Month())), fmt.Sprintf("30 %d * * %d", hour, int(local.Weekday())), fmt.Sprintf("0 %d * * *", hour),
				} {
					s := newSchedule(&StrategyRule{Windows: []string{spec}, TimeZone: name}, func(f string, a ...any) { t.Errorf(f, a...) })
					part := strings.Fields(spec)
					want := time.Time{}
					for m, text := range wall {
						if f := strings.Fields(text); m > 0 && len(f) == 5 && f[0] == part[0] && f[1] == fmt.Sprintf("%02s", part[1]) && (part[2] == "*" || f[2] == part[2] && f[3] == part[3]) && (part[4] == "*" || f[4] == part[4]) {
							want = first.Add(time.Duration(m) * time.Minute)
							break
						}
					}
					if got := s.next(first); !want.IsZero() && !got.Equal(want) || want.IsZero() && got.Sub(first) < 99*time.Hour {
						t.Errorf("%s: next(%s) of %q = %s, want %s", name, first, spec, got.In(zone), want.In(zone))
					}
				}
			}
		}
	}
}

func TestSchedule_OverChangesOfTheClock(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at := func(text string) time.Time {
		tm, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return tm
	}
	all := StrategyRule{Name: "a", Strategy: StrategyScheduled, TimeZone: "Europe/Berlin"}
	one := all
	one.Windows = []string{"30 2 * * *"}
	for name, tt := range map[string]struct {
		rule      StrategyRule
		now, next string
	}{
		"winter":                          {all, "2026-01-10T12:00:00Z", "2026-01-11T01:00:00Z"},
		"summer":                          {all, "2026-07-10T12:00:00Z", "2026-07-11T00:00:00Z"},
		"between two windows":             {all, "2026-07-10T00:30:00Z", "2026-07-10T01:00:00Z"},
		"02:00 is leapt over":             {all, "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"}, // 03:00 CEST
		"02:30 is leapt over that day":    {one, "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z"},
		"02:00 comes twice, the first":    {all, "2026-10-24T12:00:00Z", "2026-10-25T00:00:00Z"},
		"after the end of summer time":    {all, "2026-10-25T12:00:00Z", "2026-10-26T01:00:00Z"},
		"the last of a day, then the 2nd": {all, "2026-01-10T03:00:00Z", "2026-01-11T01:00:00Z"},
	} {
		s := newSchedule(&tt.rule, func(f string, a ...any) { t.Errorf(f, a...) })
		if got := s.next(at(tt.now)); !got.Equal(at(tt.next)) {
			t.Errorf("%s: next(%s) = %s, want %s", name, tt.now, got.In(berlin), at(tt.next).In(berlin))
		}
	}
	short := all
	short.WindowLength = 20 * time.Minute
	for now, want := range map[string]bool{
		"2026-01-10T00:59:59Z": false, "2026-01-10T01:00:00Z": true, "2026-01-10T01:19:59Z": true, "2026-01-10T01:20:00Z": false,
		"2026-07-10T00:05:00Z": true, "2026-07-10T12:00:00Z": false,
	} {
		s := newSchedule(&short, func(f string, a ...any) { t.Errorf(f, a...) })
		if got := s.open(at(now)); got != want {
			t.Errorf("open(%s) = %t, want %t", now, got, want)
		}
	}
}
