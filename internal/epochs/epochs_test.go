package epochs

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// An epoch is later than all rows and all other epochs, and begins earlier than the command by the
// error of the writers' clocks.
func TestNext(t *testing.T) {
	t.Parallel()
	now := time.Unix(10_000, 500_000_000)
	for _, tt := range []struct {
		name      string
		lastWrite time.Time
		others    []int64
		want      int64
	}{
		{"the first", time.Time{}, []int64{0, 0}, 9_970},
		{"after old rows and epochs", time.Unix(9_000, 0), []int64{8_000, 9_500}, 9_970},
		{"after a row of just before", time.Unix(9_999, 999_999_000), nil, 10_000},
		{"after a row of the same second", now, nil, 10_001},
		{"after an epoch of just before", time.Time{}, []int64{9_990, 0}, 9_991},
		{"after an epoch that only the topics have", time.Time{}, []int64{9_000, 9_995}, 9_996},
		{"after a row of a clock that is ahead", time.Unix(10_060, 0), nil, 10_061},
	} {
		got := Next(now, tt.lastWrite, tt.others...)
		if got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
		if e := (Epochs{got}); !tt.lastWrite.IsZero() && e.Of(tt.lastWrite.UnixMicro()) != 0 {
			t.Errorf("%s: the last row is of the epoch", tt.name)
		}
	}
}

// Of several commands that have seen the same last epoch one begins the next, in the releases of
// the database; a restore that undoes an epoch leaves the ones before.
func TestBegin(t *testing.T) {
	t.Parallel()
	scyllatest.EachVersion(t, func(t *testing.T, conf scyllafake.Config) {
		_, s := scyllatest.StartOn(t, conf)
		if err := schema.Migrate(t.Context(), s, schema.Options{}); err != nil {
			t.Fatal(err)
		}
		const table = "outbox.outbox_messages"
		if last, err := Latest(t.Context(), s, "outbox", table); last != nil || err != nil {
			t.Errorf("Latest() = %+v, %v of a table without epochs", last, err)
		}
		for _, c := range []struct {
			previous, epoch int64
			begun           bool
		}{{0, 100, true}, {0, 101, false}, {100, 102, true}, {100, 103, false}, {0, 104, false}} {
			err := Begin(t.Context(), s, "outbox", table, c.previous, c.epoch, "ada", "restored")
			if c.begun != (err == nil) || !c.begun && !errors.Is(err, ErrBegun) {
				t.Errorf("Begin(%d after %d) error = %v, want begun %t", c.epoch, c.previous, err, c.begun)
			}
		}
		last, err := Latest(t.Context(), s, "outbox", table)
		if err != nil || last.Epoch != 102 || last.SetBy != "ada" || last.Reason != "restored" || time.Since(last.SetAt).Abs() > time.Hour {
			t.Errorf("Latest() = %+v, %v, want epoch 102", last, err)
		}
		if all, err := Read(t.Context(), s, "outbox", table); err != nil || !slices.Equal(all, Epochs{100, 102}) {
			t.Errorf("Read() = %v, %v", all, err)
		}
	})
}
