package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/requestkeys"
)

// The states of an entry of the audit trail.
const (
	// auditIntended: the change was requested and its result is not recorded. For an old
	// entry, the process crashed in between; the history of the dead letter contains the
	// result.
	auditIntended = "intended"
	// auditDone: the change was made.
	auditDone = "done"
	// auditRefused: the change was refused, and nothing was changed.
	auditRefused = "refused"
	// auditUnknown: the database did not return whether the change was made.
	auditUnknown = "unknown"
)

// entry is a requested change.
type entry struct {
	// Action is the kind of change: replay, create-job …
	Action string
	// Target is the id of the dead letter or of an existing job.
	Target string
	// Detail contains the other parameters as JSON.
	Detail string
	// Reason is the reason that the user gave. Default that of the request.
	Reason string
	// At is the part of the request that contains Reason. Default the header.
	At string
	// ReasonOptional permits an empty Reason.
	ReasonOptional bool
}

// reasonAt returns At or its default.
func (e *entry) reasonAt() string { return cmp.Or(e.At, "header."+httpapi.ReasonHeader) }

// audit records each requested change before it is made, and its result afterwards.
type audit struct {
	session *gocql.Session
	timeout time.Duration
	clock   clocks.Clock
	log     *slog.Logger
	metrics *metrics
	stmt    auditStatements
}

type auditStatements struct{ ready, intend, finish, list string }

func newAudit(c *Config, m *metrics) *audit {
	return &audit{
		session: c.Session, timeout: c.Timeout, clock: c.Clock, log: c.Logger, metrics: m, stmt: newAuditStatements(c.Keyspace),
	}
}

func newAuditStatements(keyspace string) auditStatements {
	table := keyspace + ".admin_audit"
	return auditStatements{
		ready: "SELECT day FROM " + table + " WHERE day = ? LIMIT 1",
		intend: "INSERT INTO " + table + " (day, id, actor, role, action, target, detail, reason, request_id, remote, state)" +
			" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '" + auditIntended + "') USING TIMESTAMP ?",
		finish: "UPDATE " + table + " USING TIMESTAMP ? SET state = ?, outcome = ?, target = ?, finished_at = ? WHERE day = ? AND id = ?",
		list: "SELECT id, actor, role, action, target, detail, reason, request_id, remote, state, outcome, finished_at FROM " + table +
			" WHERE day = ? AND id >= ? AND id <= ? LIMIT ?",
	}
}

// dayPartition returns the partition of a time.
func dayPartition(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

func (a *audit) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return a.session.Query(stmt, args...).WithContext(ctx)
}

// ready reads one row, by which it shows that the database answers.
func (a *audit) ready(ctx context.Context) error {
	var day time.Time
	if err := a.query(ctx, a.stmt.ready, dayPartition(time.Now())).Scan(&day); err != nil && !none(err) {
		return err
	}
	return nil
}

// finishTries is the number of attempts to record the result of a change.
const finishTries = 3

// change records the request, calls do, and records the result. If the request cannot be
// recorded, do is not called. do may return a target that replaces the entry's, such as a
// new job.
func (a *audit) change(ctx context.Context, e entry, do func(context.Context, dlq.Actor) (target string, err error)) error {
	return a.changeWithResult(ctx, e, func(ctx context.Context, by dlq.Actor) (string, string, error) {
		target, err := do(ctx, by)
		return target, "", err
	})
}

// changeWithResult is change for a do that also returns a result to record.
func (a *audit) changeWithResult(ctx context.Context, e entry, do func(context.Context, dlq.Actor) (target, said string, err error)) error {
	p, ok := access.From(ctx)
	if !ok {
		return errors.New("a change needs a principal")
	}
	if e.Reason = strings.TrimSpace(cmp.Or(e.Reason, requestReason(ctx))); e.Reason == "" && !e.ReasonOptional {
		return invalid(ctx, e.reasonAt(), "state the reason of the change; the audit trail records it")
	}
	// The request may contain any bytes, and the database accepts only UTF-8.
	e.Target, e.Detail = strings.ToValidUTF8(e.Target, "\uFFFD"), strings.ToValidUTF8(e.Detail, "\uFFFD")
	id := gocql.UUIDFromTime(a.clock.Now())
	day, request := dayPartition(id.Time()), access.RequestIDOf(ctx)
	// The result overwrites the request, whatever the clocks and the order of arrival.
	written := id.Time().UnixMicro()
	log := a.log.With("actor", p.Name, "role", p.Role, "action", e.Action, "target", e.Target, "request_id", request)

	write, cancel := context.WithTimeout(ctx, a.timeout)
	err := a.query(write, a.stmt.intend, day, id, p.Name, string(p.Role), e.Action, e.Target, e.Detail, e.Reason, request, remoteAddress(ctx), written).Idempotent(true).Exec()
	cancel()
	if err != nil {
		why := newProblem(ctx, httpapi.TypeUnavailable, "The audit trail cannot be written, so nothing was changed; retry later.")
		why.Header().Set("Retry-After", retryAfter)
		log.Warn("change refused: failed to write audit trail", "err", err)
		return why
	}
	target, said, err := do(ctx, dlq.Actor{Name: p.Name, Reason: e.Reason})
	if target == "" {
		target = e.Target
	}
	state, outcome := classifyChange(err)
	switch {
	case err == nil:
		outcome = said
	case said != "": // the partial result
		outcome += "; " + said
	}
	if err != nil {
		log = log.With("err", err)
	}
	log.Info("audited change", "state", state, "result", target)
	// The change is made even if the caller has closed the request.
	for try := 1; ; try++ {
		write, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
		werr := a.query(write, a.stmt.finish, written+1, state, outcome, target, a.clock.Now(), day, id).Idempotent(true).Exec()
		cancel()
		if werr == nil {
			break
		}
		if try == finishTries {
			a.metrics.unaudited.Inc()
			log.Error("failed to record result of audited change", "audit_id", id, "state", state, "err", werr)
			break
		}
	}
	return err
}

// classifyChange returns the state and outcome that the error of a change implies.
func classifyChange(err error) (state, outcome string) {
	var p *problem
	switch {
	case err == nil:
		return auditDone, ""
	case errors.Is(err, dlq.ErrRefused), errors.Is(err, dlq.ErrNotFound), errors.Is(err, jobs.ErrNoJob), errors.Is(err, requestkeys.ErrReuse), errors.As(err, &p):
		return auditRefused, err.Error()
	default:
		return auditUnknown, err.Error()
	}
}

// AuditEntry is an entry of the audit trail.
type AuditEntry struct {
	ID        string      `json:"id" format:"uuid"`
	At        time.Time   `json:"at" doc:"Time of the request"`
	Actor     string      `json:"actor"`
	Role      access.Role `json:"role"`
	Action    string      `json:"action"`
	Summary   string      `json:"summary" doc:"The change in one sentence, such as: discard, 15 dead letters, record_too_large, reason INC-7. For a job with the number of dead letters that it has changed by now"`
	Target    string      `json:"target,omitempty" doc:"Id of the dead letter, job, order or message, or name of the relay; absent for a change of many, which detail describes"`
	Detail    string      `json:"detail,omitempty" doc:"Parameters of the request as JSON"`
	Reason    string      `json:"reason,omitempty"`
	RequestID string      `json:"request_id"`
	Remote    string      `json:"remote,omitempty" doc:"Address of the client"`
	State     string      `json:"state" enum:"intended,done,refused,unknown" doc:"intended: the result was not recorded, so the process may have crashed; unknown: the database did not return the result"`
	Outcome   string      `json:"outcome,omitempty" doc:"Why it was refused or is undetermined; for a change of many, the result as JSON"`
	Finished  *time.Time  `json:"finished_at,omitempty"`
}

// day returns up to limit entries of a day between two ids, both included, newest first.
func (a *audit) day(ctx context.Context, day time.Time, from, to gocql.UUID, limit int) (out []AuditEntry, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	iter := a.query(ctx, a.stmt.list, day, from, to, limit).Idempotent(true).Iter()
	for {
		var l AuditEntry
		var id gocql.UUID
		var finished time.Time
		if !iter.Scan(&id, &l.Actor, (*string)(&l.Role), &l.Action, &l.Target, &l.Detail, &l.Reason, &l.RequestID, &l.Remote, &l.State, &l.Outcome, &finished) {
			break
		}
		l.ID, l.At, l.Finished = id.String(), id.Time().UTC(), when(finished)
		out = append(out, l)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the audit trail of %s: %w", day.Format(time.DateOnly), err)
	}
	return out, nil
}
