package doctor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/topiclist"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay"
)

// checkTables makes the checks of the relay's start for each table, checks that its CDC log can be
// read, and that the ids and numbers of a sample of its rows do not contradict each other. It reports the number of streams of the log, and one with most of its rows.
func checkTables(ctx context.Context, c *app.Config, session *gocql.Session) []Finding {
	confs, err := c.RelayConfigs()
	if err != nil {
		return []Finding{{"tables of the relay", false, err.Error(), "fix the relay settings"}}
	}
	out := make([]Finding, len(confs))
	for i := range confs {
		confs[i].Session = session
		check := "table " + app.TableName(&confs[i])
		if len(c.Relay.Tables) == 0 {
			check = "CDC log of the outbox table"
		}
		out[i] = checkTable(ctx, check, &confs[i])
	}
	return out
}

func checkTable(ctx context.Context, check string, conf *relay.Config) Finding {
	const stays = "fix the reported error; the relay does not start with it"
	name := app.TableName(conf)
	if err := conf.Validate(); err != nil {
		return Finding{check, false, app.InSettings(err).Error(), stays}
	}
	err := relay.CheckTable(ctx, *conf)
	if problems, fixes := misfits(err); len(problems) > 0 {
		return Finding{check, false, name + ": " + strings.Join(problems, "; "), strings.Join(fixes, "; ")}
	}
	if err != nil {
		return Finding{check, false, err.Error(), stays}
	}
	log := name + "_scylla_cdc_log"
	err = conf.Session.Query("SELECT \"cdc$time\" FROM " + log + " LIMIT 1").WithContext(ctx).Iter().Close()
	switch {
	case err == nil:
		streams, err := describeStreams(ctx, conf, log)
		if err != nil {
			return Finding{check, false, err.Error(), "fix the reported error"}
		}
		sampled, problem, fix, err := sampleTable(ctx, conf)
		switch {
		case err != nil: // the start of the relay does not need this right
			return Finding{check, true, fmt.Sprintf("%s can be read: %s; ids and numbers are not checked: %v", log, streams, err), ""}
		case problem != "":
			return Finding{check, false, fmt.Sprintf("%s: of %s, %s", name, sampled, problem), fix}
		}
		return Finding{check, true, fmt.Sprintf("%s can be read: %s; no id or number twice in a sample of %s", log, streams, sampled), ""}
	case cqlcode.Of(err) == gocql.ErrCodeUnauthorized:
		return Finding{check, false, err.Error(), "GRANT SELECT ON " + log + " TO the relay's role"}
	}
	return Finding{check, false, err.Error(), "fix the reported error"}
}

// misfits returns each problem of a table that does not fit its mapping, with its fix.
func misfits(err error) (problems, fixes []string) {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			p, f := misfits(one)
			problems, fixes = append(problems, p...), append(fixes, f...)
		}
		return problems, fixes
	}
	bad, ok := errors.AsType[*outbox.MappingError](err)
	if !ok {
		return nil, nil
	}
	problem := bad.Problem
	if bad.Column != "" {
		problem = "column " + bad.Column + " " + problem
	}
	return []string{problem}, []string{bad.Fix}
}

// placeholder matches the parts of a topic template that are fields of an event.
var placeholder = regexp.MustCompile(`\$?\{(event_type|aggregate_type)\}`)

// topics returns the topics of the tables: the ones named by settings, and the existing ones
// that match a template. templates are the templates without an existing topic.
func topics(ctx context.Context, c *app.Config, admin *kadm.Client) (topics, templates []string, err error) {
	confs, err := c.RelayConfigs()
	if err != nil {
		return nil, nil, err
	}
	var there []string
	for i := range confs {
		conf := &confs[i]
		for _, t := range conf.Topics {
			topics = append(topics, t)
		}
		template := app.TopicTemplate(conf)
		plain := conf.TableKeyspace == conf.Keyspace && conf.Table == outbox.DefaultTableName
		for _, e := range app.OrderEvents {
			if _, mapped := conf.Topics[e]; plain && !mapped {
				topics = append(topics, relay.ExpandTopic(template, e, "order"))
			}
		}
		if plain {
			continue
		}
		if !placeholder.MatchString(template) {
			topics = append(topics, template)
			continue
		}
		if there == nil {
			all, err := topiclist.All(ctx, admin)
			if err != nil {
				return nil, nil, err
			}
			there = all.Names()
		}
		found := matching(template, there)
		if topics = append(topics, found...); len(found) == 0 {
			templates = append(templates, template)
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics), templates, nil
}

// matching returns the names that a template can produce, none if it can produce any name.
func matching(template string, names []string) (out []string) {
	parts := placeholder.Split(template, -1)
	if strings.Join(parts, "") == "" {
		return nil
	}
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	re := regexp.MustCompile("^" + strings.Join(parts, ".+") + "$")
	for _, n := range names {
		if re.MatchString(n) {
			out = append(out, n)
		}
	}
	return out
}
