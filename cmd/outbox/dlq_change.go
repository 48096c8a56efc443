package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// dlqChange is a command that changes letters.
type dlqChange struct {
	action      dlq.Action
	short, long string
	do          func(*dlq.Store, context.Context, gocql.UUID, dlq.Actor) error
}

var dlqChanges = []dlqChange{
	{
		dlq.ActionReplay, "Have the relay publish letters now",
		`Have the relay publish letters now, in the order of their aggregates. Letters
parked behind them follow by themselves. One that fails again waits as before.`, (*dlq.Store).Replay,
	},
	{
		dlq.ActionDiscard, "Give letters up for good: they will never be published",
		`Give letters up for good: they will never be published, and consumers lack them.
The letters stay to be looked at; those parked behind them go on.`, (*dlq.Store).Discard,
	},
	{
		dlq.ActionRelease, "Let the later events of an aggregate pass a letter",
		`Let the later events of an aggregate pass a letter. The letter stays, manual, and
can be replayed later, out of order, or discarded.`, (*dlq.Store).Release,
	},
	{
		dlq.ActionResolve, "Close letters that were settled elsewhere",
		`Close letters that were settled elsewhere, such as by hand in the systems that
consume them. They will not be published; those parked behind them go on.`, (*dlq.Store).ResolveByHand,
	},
	{
		dlq.ActionPark, "Put letters aside: no automatic replay until somebody says so",
		`Put letters aside: they are manual, not replayed by themselves, and hold back the
later events of their aggregates until they are replayed, discarded or released.`, (*dlq.Store).Park,
	},
}

// dlqChangeFlags are those of every change.
type dlqChangeFlags struct {
	dlqFilter
	all, dryRun, yes      bool
	reason, actor, output string
	rate                  float64
}

func newDLQChangeCommand(c dlqChange) *cobra.Command {
	var f dlqChangeFlags
	cmd := &cobra.Command{
		Use:   string(c.action) + " [EVENT_ID...]",
		Short: c.short,
		Long: c.long + `

Name events, or say which by filters, or --all. Without --status only open
letters are meant. What would be done is shown first. Exit status 1 if a letter
could not be changed.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := eventIDs(args)
			if err != nil {
				return err
			}
			filter, err := f.check(len(ids) > 0, time.Now())
			if err != nil {
				return err
			}
			return withDLQ(cmd, func(s *dlq.Store) error { return f.change(cmd, s, c, ids, filter) })
		},
	}
	f.addFlags(cmd, 0)
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "all open letters, without any filter")
	fl.BoolVar(&f.dryRun, "dry-run", false, "only show what would be done")
	fl.BoolVarP(&f.yes, "yes", "y", false, "do it without asking")
	fl.StringVar(&f.reason, "reason", "", "why; kept in the letters' history")
	fl.StringVar(&f.actor, "actor", "", "who; kept in the letters' history (default the user of this machine)")
	fl.Float64Var(&f.rate, "rate", 0, "letters per second at most; 0 means as fast as it goes")
	outputFlag(cmd, &f.output)
	addFlags(cmd, sectionScylla)
	return cmd
}

// check returns the filter that the flags mean; named says that the command
// line has event ids.
func (f *dlqChangeFlags) check(named bool, now time.Time) (dlq.Filter, error) {
	filter, err := f.filter(now)
	if err == nil {
		err = checkOutput(f.output)
	}
	switch {
	case err != nil:
		return filter, err
	case named && (!f.empty() || f.all || f.limit != 0):
		return filter, usageError{errors.New("event ids and filters do not go together: use one or the other")}
	case !named && f.empty() && !f.all:
		return filter, usageError{errors.New("which letters? name event ids, use a filter such as --error-type, or --all")}
	case f.all && !f.empty():
		return filter, usageError{errors.New("--all and filters do not go together: use one or the other")}
	case f.rate < 0:
		return filter, usageError{fmt.Errorf("--rate %v must not be negative", f.rate)}
	}
	if len(filter.Status) == 0 {
		for _, s := range dlq.Statuses {
			if s.Open() {
				filter.Status = append(filter.Status, s)
			}
		}
	}
	return filter, nil
}

// changed is what a change prints as JSON.
type changed struct {
	Preview dlq.Preview `json:"preview"`
	DryRun  bool        `json:"dry_run,omitempty"`
	Changed int64       `json:"changed"`
	// Refused are letters that were named and stand where the action cannot begin,
	// and those that moved on since the preview.
	Refused int64 `json:"refused"`
	// Missing are event ids that have no letter.
	Missing []string `json:"missing,omitempty"`
	// Failed are letters of which the database could not say what became.
	Failed int64 `json:"failed"`
	// Skipped says what the change leaves out and what goes on behind it; the
	// letters' histories say it of each.
	Skipped string   `json:"skipped,omitempty"`
	Errors  []string `json:"errors,omitempty"`
}

// refuse counts a letter that was refused. One goroutine at a time may call it.
func (c *changed) refuse(err error) {
	c.Refused++
	c.explain(err)
}

func (c *changed) explain(err error) {
	if len(c.Errors) < dlqErrors {
		c.Errors = append(c.Errors, err.Error())
	}
}

func (f *dlqChangeFlags) change(cmd *cobra.Command, s *dlq.Store, c dlqChange, ids []gocql.UUID, filter dlq.Filter) error {
	ctx := cmd.Context()
	var letters []dlq.Letter
	var out changed
	var err error
	if len(ids) > 0 {
		letters, out.Missing, err = readLetters(ctx, s, ids)
	} else {
		letters, _, err = collect(cmd, s, filter, f.limit)
	}
	if err != nil {
		return err
	}
	var may []dlq.Letter
	if out.Preview, may, err = s.Preview(ctx, c.action, letters); err != nil {
		return err
	}
	if len(ids) > 0 {
		for i := range letters {
			if err := s.Check(c.action, &letters[i]); err != nil {
				out.refuse(err)
			}
		}
	}
	if f.output == "table" || !f.dryRun {
		f.printPreview(cmd.ErrOrStderr(), &out)
	}
	switch {
	case f.dryRun:
		out.DryRun = true
	case len(may) > 0:
		if err := f.confirm(cmd, c.action, len(may)); err != nil {
			return err
		}
		if err := f.run(cmd, s, c, may, &out); err != nil {
			return err
		}
	}
	out.Skipped = skipped(c.action, &out)
	if f.output != "table" {
		err = printAs(cmd.OutOrStdout(), f.output, out)
	} else if !f.dryRun {
		if out.Skipped != "" {
			defer fmt.Fprintln(cmd.OutOrStdout(), out.Skipped)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d changed, %d refused, %d failed, %d not found\n",
			c.action, out.Changed, out.Refused, out.Failed, len(out.Missing))
	}
	for _, e := range out.Errors {
		fmt.Fprintln(cmd.ErrOrStderr(), "  "+clean(e, 300))
	}
	if err == nil && !f.dryRun && (out.Failed+out.Refused > 0 || len(out.Missing) > 0) {
		err = quietError{}
	}
	return err
}

// skipped is what a change left out, in words; empty if it leaves out nothing.
func skipped(action dlq.Action, c *changed) string {
	what, ok := map[dlq.Action]string{
		dlq.ActionDiscard: "never published", dlq.ActionResolve: "not published by the relay", dlq.ActionRelease: "passed by later ones of their aggregates",
	}[action]
	if !ok || c.Changed == 0 {
		return ""
	}
	return fmt.Sprintf("skipped: %d events are %s; dead letters behind them that go on: %d", c.Changed, what, c.Preview.Followers)
}

// readLetters reads the letters of events, each once; missing have none.
func readLetters(ctx context.Context, s *dlq.Store, ids []gocql.UUID) (letters []dlq.Letter, missing []string, err error) {
	seen := make(map[gocql.UUID]bool)
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		l, err := s.Read(ctx, id)
		switch {
		case errors.Is(err, dlq.ErrNotFound):
			missing = append(missing, id.String())
		case err != nil:
			return nil, nil, err
		default:
			l.Payload, l.Headers = nil, nil
			letters = append(letters, l)
		}
	}
	return letters, missing, nil
}

func (f *dlqChangeFlags) printPreview(w io.Writer, out *changed) {
	p := &out.Preview
	fmt.Fprintf(w, "%s %s of %s", p.Action, plural(p.Letters, "letter"), plural(p.Aggregates, "aggregate"))
	if f.rate > 0 {
		fmt.Fprintf(w, ", in %s at %v a second", time.Duration(float64(p.Letters)/f.rate*float64(time.Second)).Round(time.Second), f.rate)
	}
	fmt.Fprintln(w)
	counts(w, "by status", wide(p.ByStatus))
	counts(w, "by error", wide(p.ByClass))
	counts(w, "by topic", wide(p.ByTopic))
	switch more := ""; {
	case p.Followers > 0:
		if p.FollowersOf < p.Aggregates {
			more = fmt.Sprintf(" in the first %d aggregates", p.FollowersOf)
		}
		fmt.Fprintf(w, "parked behind them%s: %s\n", more, plural(p.Followers, "letter"))
	}
	counts(w, "left as they are, since "+string(p.Action)+" cannot begin there", wide(p.Refused))
	for _, id := range out.Missing {
		fmt.Fprintf(w, "event %s has no dead letter\n", id)
	}
}

// plural is n of what, whose plural ends in s.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func wide[K ~string](m map[K]int) map[K]int64 {
	out := make(map[K]int64, len(m))
	for k, n := range m {
		out[k] = int64(n)
	}
	return out
}

// confirm returns nil if the change may be made.
func (f *dlqChangeFlags) confirm(cmd *cobra.Command, action dlq.Action, n int) error {
	if f.yes {
		return nil
	}
	in, isFile := cmd.InOrStdin().(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return usageError{withHint(errors.New("nothing was changed: there is no terminal to ask on"), "--yes does it without asking")}
	}
	return ask(in, cmd.ErrOrStderr(), fmt.Sprintf("%s %s?", action, plural(n, "letter")))
}

// ask asks a question to which only yes is an assent.
func ask(in io.Reader, out io.Writer, question string) error {
	fmt.Fprintf(out, "%s Type yes to go on: ", question)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if strings.ToLower(strings.TrimSpace(line)) != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

const (
	// dlqWorkers is how many letters are changed at the same time.
	dlqWorkers = 8
	// dlqErrors is how many errors are shown.
	dlqErrors = 10
)

// run changes the letters and counts in out what became of them.
func (f *dlqChangeFlags) run(cmd *cobra.Command, s *dlq.Store, c dlqChange, letters []dlq.Letter, out *changed) error {
	by := dlq.Actor{Name: f.actor, Reason: f.reason}
	if by.Name == "" {
		by.Name = thisUser()
	}
	limit := rate.NewLimiter(rate.Inf, 1)
	if f.rate > 0 {
		limit = rate.NewLimiter(rate.Limit(f.rate), 1)
	}
	var next, done atomic.Int64
	var mu sync.Mutex // of out
	work := func() error {
		var wg sync.WaitGroup
		for range min(dlqWorkers, len(letters)) {
			wg.Go(func() {
				for limit.Wait(cmd.Context()) == nil {
					i := int(next.Add(1)) - 1
					if i >= len(letters) {
						return
					}
					err := c.do(s, cmd.Context(), letters[i].EventID, by)
					done.Add(1)
					mu.Lock()
					switch {
					case err == nil:
						out.Changed++
					case errors.Is(err, dlq.ErrRefused):
						out.refuse(err)
					default:
						out.Failed++
						out.explain(err)
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		return nil
	}
	var err error
	if len(letters) > dlqListed {
		err = showing(cmd.Context(), newProgress(cmd.ErrOrStderr(), int64(len(letters)), done.Load, nil), work)
	} else {
		err = work()
	}
	if left := int64(len(letters)) - done.Load(); left > 0 && err == nil {
		err = withHint(fmt.Errorf("interrupted: %d changed, %d to do", out.Changed, left), "the same command goes on with the rest")
	}
	return err
}

// thisUser names who runs the command.
func thisUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "unknown"
}
