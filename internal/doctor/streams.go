package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

const (
	// fewStreams is the number of streams up to which their rows are counted. Vnodes have more.
	fewStreams = 128
	// countedFor is the age up to which rows of the log are counted, maxCounted their maximum
	// number for each stream.
	countedFor = time.Minute
	maxCounted = 1000
	// busyRows is the number of counted rows from which a stream can be hot.
	busyRows = 200
)

// describeStreams returns the number of streams of a CDC log, and whether most of its new rows
// are in one of them.
func describeStreams(ctx context.Context, conf *relay.Config, log string) (string, error) {
	streams, err := relay.Streams(ctx, *conf)
	if err != nil {
		return "", err
	}
	if len(streams) == 1 {
		return "1 stream, because the table has one tablet: relay and log use one shard of the cluster; raise min_tablet_count (docs/operators/tablets.md)", nil
	}
	text := fmt.Sprintf("%d streams", len(streams))
	if len(streams) > fewStreams {
		return text, nil
	}
	since := gocql.MinTimeUUID(time.Now().Add(-countedFor))
	var most, all int64
	for _, id := range streams {
		var n int64
		iter := conf.Session.Query("SELECT \"cdc$time\" FROM "+log+" WHERE \"cdc$stream_id\" = ? AND \"cdc$time\" > ? LIMIT ?", id, since, maxCounted).
			WithContext(ctx).Idempotent(true).Iter()
		for row := (gocql.UUID{}); iter.Scan(&row); {
			n++
		}
		if err := iter.Close(); err != nil {
			return "", fmt.Errorf("count the rows of the CDC log: %w", err)
		}
		most, all = max(most, n), all+n
	}
	if most >= busyRows && 2*most > all {
		text += fmt.Sprintf("; one of them has %d %% of the rows of the last %s: few aggregates have most events, which more tablets do not change", 100*most/all, countedFor)
	}
	return text, nil
}
