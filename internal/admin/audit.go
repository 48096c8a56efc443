package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// The states of a line of the audit.
const (
	// auditIntended: it was asked for, and what came of it is not written. If that
	// was long ago, the process died in between; the letter's history knows.
	auditIntended = "intended"
	// auditDone: it was made.
	auditDone = "done"
	// auditRefused: it could not begin, and nothing was changed.
	auditRefused = "refused"
	// auditUnknown: the database did not say whether it was made.
	auditUnknown = "unknown"
)

// entry is what somebody asks for.
type entry struct {
	// Action is what: replay, create-job …
	Action string
	// Target is the letter or the job, if there is one already.
	Target string
	// Detail is what else was said, as JSON.
	Detail string
	// Reason is why, in the words of who asked.
	Reason string
}

// audit writes down who asked for what, before it is done, and what came of it.
type audit struct {
	session *gocql.Session
	cons    gocql.Consistency
	timeout time.Duration
	now     func() time.Time
	log     *slog.Logger
	metrics *metrics
	stmt    auditStatements
}

type auditStatements struct{ ready, intend, finish, list string }

func newAudit(c *Config, m *metrics) *audit {
	table := c.Keyspace + ".admin_audit"
	return &audit{
		session: c.Session, cons: c.Consistency, timeout: c.Timeout, now: c.Now, log: c.Logger, metrics: m,
		stmt: auditStatements{
			ready: "SELECT day FROM " + table + " WHERE day = ? LIMIT 1",
			intend: "INSERT INTO " + table + " (day, id, actor, role, action, target, detail, reason, request_id, remote, state)" +
				" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, '" + auditIntended + "') USING TIMESTAMP ?",
			finish: "UPDATE " + table + " USING TIMESTAMP ? SET state = ?, outcome = ?, target = ?, finished_at = ? WHERE day = ? AND id = ?",
			list: "SELECT id, actor, role, action, target, detail, reason, request_id, remote, state, outcome, finished_at FROM " + table +
				" WHERE day = ? AND id >= ? AND id <= ? LIMIT ?",
		},
	}
}

// dayOf is the partition of a time.
func dayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

func (a *audit) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return a.session.Query(stmt, args...).WithContext(ctx).Consistency(a.cons)
}

// finishTries is how often the outcome of a change is written before it is given up.
const finishTries = 3

// change makes a change: it writes down that it is asked for, does it, and writes
// down what came of it. If the first cannot be written, the change is not made. do
// may return another target than the entry's, such as a job that it made.
func (a *audit) change(ctx context.Context, e entry, do func(context.Context, dlq.Actor) (target string, err error)) error {
	return a.changeSaying(ctx, e, func(ctx context.Context, by dlq.Actor) (string, string, error) {
		target, err := do(ctx, by)
		return target, "", err
	})
}

// changeSaying is change for what has more to say of its outcome than that it was made.
func (a *audit) changeSaying(ctx context.Context, e entry, do func(context.Context, dlq.Actor) (target, said string, err error)) error {
	p, ok := access.From(ctx)
	if !ok {
		return errors.New("a change needs a principal")
	}
	// What was asked may be anything, and the database takes UTF-8 alone.
	e.Target, e.Detail = strings.ToValidUTF8(e.Target, "\uFFFD"), strings.ToValidUTF8(e.Detail, "\uFFFD")
	id := gocql.UUIDFromTime(a.now())
	day, request := dayOf(id.Time()), access.RequestIDOf(ctx)
	// The outcome covers the intention, whatever clocks do and whichever comes first.
	written := id.Time().UnixMicro()
	log := a.log.With("actor", p.Name, "role", p.Role, "action", e.Action, "target", e.Target)
	if request != "" { // a command has none
		log = log.With("request_id", request)
	}

	write, cancel := context.WithTimeout(ctx, a.timeout)
	err := a.query(write, a.stmt.intend, day, id, p.Name, string(p.Role), e.Action, e.Target, e.Detail, e.Reason, request, remoteOf(ctx), written).Idempotent(true).Exec()
	cancel()
	if err != nil {
		why := newProblem(ctx, 503, problemUnavailable, "The audit trail cannot be written, so nothing was changed; retry later.")
		why.Header().Set("Retry-After", retryAfter)
		log.Warn("change refused: failed to write audit trail", "err", err)
		return why
	}
	target, said, err := do(ctx, dlq.Actor{Name: p.Name, Reason: e.Reason})
	if target == "" {
		target = e.Target
	}
	state, outcome := stateOf(err)
	switch {
	case err == nil:
		outcome = said
	case said != "": // what was done before it failed
		outcome += "; " + said
	}
	if err != nil {
		log = log.With("err", err)
	}
	log.Info("audited change", "state", state, "result", target)
	// What was done stays done although the caller may have hung up.
	for try := 1; ; try++ {
		write, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timeout)
		werr := a.query(write, a.stmt.finish, written+1, state, outcome, target, a.now(), day, id).Idempotent(true).Exec()
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

// Change is what somebody asks for without the API, who may do what the database lets
// them.
type Change struct {
	// Actor is who, Action what, Target of what, Detail what else was said, as JSON, and
	// Reason why, in the words of who asked.
	Actor, Action, Target, Detail, Reason string
}

// Audited makes a change that was not asked for by the API, and writes into its audit
// that it was, and what came of it. If the audit cannot be written the change is not
// made.
func Audited(ctx context.Context, session *gocql.Session, keyspace string, log *slog.Logger, c Change, do func(context.Context) error) error {
	return AuditedSaying(ctx, session, keyspace, log, c, func(ctx context.Context) (string, error) { return "", do(ctx) })
}

// AuditedSaying is Audited for what has more to say of its outcome than that it was
// made, as JSON, also where it failed on the way.
func AuditedSaying(ctx context.Context, session *gocql.Session, keyspace string, log *slog.Logger, c Change, do func(context.Context) (said string, err error)) error {
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		return err
	}
	a := newAudit(&Config{
		Session: session, Keyspace: keyspace, Consistency: gocql.LocalQuorum, Timeout: DefaultTimeout, Now: time.Now, Logger: log,
	}, m)
	ctx = access.With(ctx, access.Principal{Name: c.Actor, Role: access.Admin})
	return a.changeSaying(ctx, entry{c.Action, c.Target, c.Detail, c.Reason}, func(ctx context.Context, _ dlq.Actor) (string, string, error) {
		said, err := do(ctx)
		return c.Target, said, err
	})
}

// stateOf is what a change's error says of it.
func stateOf(err error) (state, outcome string) {
	var p *problem
	switch {
	case err == nil:
		return auditDone, ""
	case errors.Is(err, dlq.ErrRefused), errors.Is(err, dlq.ErrNotFound), errors.Is(err, jobs.ErrNoJob),
		errors.Is(err, delivery.ErrNotFound), errors.Is(err, delivery.ErrPending), errors.As(err, &p):
		return auditRefused, err.Error()
	default:
		return auditUnknown, err.Error()
	}
}

// auditLine is a row.
type auditLine struct {
	ID        string      `json:"id" format:"uuid"`
	At        time.Time   `json:"at" doc:"Time of the request"`
	Actor     string      `json:"actor"`
	Role      access.Role `json:"role"`
	Action    string      `json:"action"`
	Target    string      `json:"target,omitempty" doc:"Id of the dead letter, job, order, message or delivery, or name of the relay; absent for a change of many, which detail describes"`
	Detail    string      `json:"detail,omitempty" doc:"Parameters of the request as JSON"`
	Reason    string      `json:"reason,omitempty"`
	RequestID string      `json:"request_id"`
	Remote    string      `json:"remote,omitempty" doc:"Address of the client"`
	State     string      `json:"state" enum:"intended,done,refused,unknown" doc:"intended: the result was not recorded, so the process may have crashed; unknown: the database did not return the result"`
	Outcome   string      `json:"outcome,omitempty" doc:"Why it was refused or is undetermined; for a change of many, the result as JSON"`
	Finished  *time.Time  `json:"finished_at,omitempty"`
}

// day returns up to limit lines of a day between two ids, both included, newest first.
func (a *audit) day(ctx context.Context, day time.Time, from, to gocql.UUID, limit int) (out []auditLine, err error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	iter := a.query(ctx, a.stmt.list, day, from, to, limit).Idempotent(true).Iter()
	for {
		var l auditLine
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
