package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
)

// jobColumns are the columns of a job's row, in the order of jobRow.dest.
var jobColumns = []string{
	"id", "version", "written_by", "state", "spec", "cursor", "batch_no", "batch_ids", "progress", "error", "claimed_by", "claimed_until",
	"started_at", "finished_at", "history",
}

type statements struct {
	insert, update, one, many     string
	list, unlist, listed, listAll string
	acted, actedOn                string
	monthAdd, months              string
}

func newStatements(keyspace string) statements {
	jobs, list, deadLetters := keyspace+".dead_letter_jobs", keyspace+".dead_letter_job_list", keyspace+".dead_letter_job_changes"
	buckets := keyspace + ".dead_letter_buckets"
	columns := strings.Join(jobColumns, ", ")
	return statements{
		insert: "INSERT INTO " + jobs + " (" + columns + ") VALUES (" + strings.TrimSuffix(strings.Repeat("?, ", len(jobColumns)), ", ") + ") IF NOT EXISTS",
		update: "UPDATE " + jobs + " SET version = ?, written_by = ?, state = ?, cursor = ?, batch_no = ?, batch_ids = ?, progress = ?, error = ?," +
			" claimed_by = ?, claimed_until = ?, started_at = ?, finished_at = ?",
		one:  "SELECT " + columns + " FROM " + jobs + " WHERE id = ?",
		many: "SELECT " + columns + " FROM " + jobs + " WHERE id IN ?",
		// A job is added to a list once and removed once, so any two timestamps are
		// correct if the removal's is the greater.
		list:    "INSERT INTO " + list + " (bucket, id) VALUES (?, ?) USING TIMESTAMP 1",
		unlist:  "DELETE FROM " + list + " USING TIMESTAMP 2 WHERE bucket = ? AND id = ?",
		listed:  "SELECT id FROM " + list + " WHERE bucket = ? AND id < ? LIMIT ?",
		listAll: "SELECT id FROM " + list + " WHERE bucket = ? LIMIT ?",
		acted:   "INSERT INTO " + deadLetters + " (job_id, batch_no, event_id, version, error_class, acted_at) VALUES (?, ?, ?, ?, ?, ?)",
		actedOn: "SELECT event_id, version, error_class, acted_at FROM " + deadLetters + " WHERE job_id = ? AND batch_no = ?",
		// The months are never removed.
		monthAdd: "INSERT INTO " + buckets + " (kind, value, bucket) VALUES (?, ?, ?) USING TIMESTAMP 1",
		months:   "SELECT bucket FROM " + buckets + " WHERE kind = ? AND value = ? AND bucket >= ? AND bucket < ?",
	}
}

// jobRow is a job as its row has it.
type jobRow struct {
	Job
	spec, cursor, progress string
	history                map[int64]string
}

// storedSpec is the specification and the creator in a job's row.
type storedSpec struct {
	Spec
	Actor dlq.Actor `json:"actor"`
}

func (r *jobRow) dest() []any {
	return []any{
		&r.ID, &r.Version, &r.writtenBy, (*string)(&r.State), &r.spec, &r.cursor, &r.batch, &r.ids, &r.progress, &r.Error,
		&r.ClaimedBy, &r.ClaimedUntil, &r.Started, &r.Finished, &r.history,
	}
}

// job is the job of the row.
func (r *jobRow) job() (*Job, error) {
	var spec storedSpec
	err := json.Unmarshal([]byte(r.spec), &spec)
	if err == nil {
		err = json.Unmarshal([]byte(r.cursor), &r.Job.cursor)
	}
	if err == nil {
		err = json.Unmarshal([]byte(r.progress), &r.Progress)
	}
	r.Spec, r.Actor = spec.Spec, spec.Actor
	versions := make([]int64, 0, len(r.history))
	for v := range r.history {
		versions = append(versions, v)
	}
	slices.Sort(versions)
	for _, v := range versions {
		var c JobChange
		if err == nil {
			err = json.Unmarshal([]byte(r.history[v]), &c)
		}
		r.History = append(r.History, c)
	}
	if err != nil {
		return nil, fmt.Errorf("job %s: its row cannot be read: %w", r.ID, err)
	}
	return &r.Job, nil
}

func (s *Store) readJob(ctx context.Context, id gocql.UUID, cons gocql.Consistency) (*Job, error) {
	if id.Version() != 1 { // the column takes no other
		return nil, fmt.Errorf("job %s: %w", id, ErrNoJob)
	}
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	var r jobRow
	err := s.db.Select(ctx, s.stmt.one, id).Consistency(cons).Scan(r.dest()...)
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return nil, fmt.Errorf("job %s: %w", id, ErrNoJob)
	case err != nil:
		return nil, fmt.Errorf("read job %s: %w", id, err)
	}
	return r.job()
}

// ReadMany returns the jobs of ids, in their order. Ids without a job are skipped.
func (s *Store) ReadMany(ctx context.Context, ids []gocql.UUID) ([]*Job, error) {
	found := make(map[gocql.UUID]*Job, len(ids))
	ids = slices.DeleteFunc(slices.Clone(ids), func(id gocql.UUID) bool { return id.Version() != 1 }) // the column takes no other
	for some := range slices.Chunk(ids, chunk) {
		rows, err := db.Rows(ctx, s.db, (*jobRow).dest, s.stmt.many, some)
		if err != nil {
			return nil, fmt.Errorf("read %d jobs: %w", len(some), err)
		}
		for i := range rows {
			j, err := rows[i].job()
			if err != nil {
				return nil, err
			}
			found[j.ID] = j
		}
	}
	var out []*Job
	for _, id := range ids {
		if j, ok := found[id]; ok {
			out = append(out, j)
		}
	}
	return out, nil
}

func asJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("dlq: %T of plain fields cannot be marshalled: %v", v, err))
	}
	return string(b)
}

// insertJob stores a new job; repeating it is not an error.
func (s *Store) insertJob(ctx context.Context, j *Job) error {
	// No other process has this id: a stored row is of an earlier attempt.
	_, err := s.db.Apply(ctx, s.stmt.insert,
		j.ID, j.Version, j.ID, string(j.State), asJSON(storedSpec{j.Spec, j.Actor}), asJSON(j.cursor), j.batch, j.ids, asJSON(j.Progress), j.Error,
		gocql.UnsetValue, gocql.UnsetValue, gocql.UnsetValue, gocql.UnsetValue, map[int64]string{j.Version: asJSON(j.History[0])},
	)
	if err != nil {
		return fmt.Errorf("store job %s: %w", j.ID, err)
	}
	return nil
}

// updateJob is the lightweight transaction of a change: j is the job after it
// but for its version, lines are new in its history.
func (s *Store) updateJob(ctx context.Context, j *Job, by gocql.UUID, lines []JobChange) (bool, error) {
	old := j.Version
	j.Version, j.writtenBy = old+1, by
	args := []any{
		j.Version, by, string(j.State), asJSON(j.cursor), j.batch, j.ids, asJSON(j.Progress), j.Error,
		unsetNilText(j.ClaimedBy), db.NullTime(j.ClaimedUntil), db.NullTime(j.Started), db.NullTime(j.Finished),
	}
	stmt := s.stmt.update
	if len(lines) > 0 {
		stmt += ", history[?] = ?"
		args = append(args, j.Version, asJSON(lines[0]))
	}
	if j.prepared {
		stmt += ", spec = ?"
		args = append(args, asJSON(storedSpec{j.Spec, j.Actor}))
	}
	stmt += " WHERE id = ? IF version = ?"
	args = append(args, j.ID, old)
	applied, err := s.db.Apply(ctx, stmt, args...)
	if err != nil {
		return false, fmt.Errorf("change job %s: %w", j.ID, err)
	}
	return applied, nil
}

// unsetNilText is text, or null for none.
func unsetNilText(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func (s *Store) listJob(ctx context.Context, j *Job) error {
	month := monthBucket(j.ID.Time())
	if err := s.db.Write(ctx, s.stmt.monthAdd, monthKind, "", month); err != nil {
		return fmt.Errorf("list job %s: %w", j.ID, err)
	}
	for _, bucket := range []time.Time{month, openJobs} {
		if err := s.db.Write(ctx, s.stmt.list, bucket, j.ID); err != nil {
			return fmt.Errorf("list job %s: %w", j.ID, err)
		}
	}
	return nil
}

// unlistJob removes a finished job from the list of open ones. If that fails, ListOpen
// skips the job.
func (s *Store) unlistJob(ctx context.Context, j *Job) *Job {
	if j.Finished.IsZero() {
		return j
	}
	if err := s.db.Write(ctx, s.stmt.unlist, openJobs, j.ID); err != nil {
		s.db.Log.Debug("failed to remove a finished job from the list of open jobs", "job", j.ID, "err", err)
	}
	return j
}

// jobMonths are the months that may have jobs made before after, the last first.
func (s *Store) jobMonths(ctx context.Context, after gocql.UUID) (months []time.Time, err error) {
	until := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	if after != (gocql.UUID{}) {
		until = monthBucket(after.Time()).AddDate(0, 0, 1)
	}
	if months, err = db.Rows(ctx, s.db, db.Column[time.Time], s.stmt.months, monthKind, "", time.Unix(0, 0), until); err != nil {
		return nil, fmt.Errorf("read in which months jobs were made: %w", err)
	}
	return months, nil
}

// jobIDs are up to limit jobs of a bucket, the newest first.
func (s *Store) jobIDs(ctx context.Context, bucket time.Time, after gocql.UUID, limit int) (ids []gocql.UUID, err error) {
	stmt, args := s.stmt.listAll, []any{bucket, limit}
	if after != (gocql.UUID{}) {
		stmt, args = s.stmt.listed, []any{bucket, after, limit}
	}
	if ids, err = db.Rows(ctx, s.db, db.Column[gocql.UUID], stmt, args...); err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return ids, nil
}
