package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// completionTime bounds the wait of a shell. Only tests change it: they wait for the answer.
var completionTime = 2 * time.Second

// complete adds shell completion of the filter's flags.
func (f *dlqFilter) complete(cmd *cobra.Command) {
	for flag, values := range map[string]func(*cobra.Command) []string{
		"status": func(*cobra.Command) []string { return statusNames() },
		"error-class": func(cmd *cobra.Command) []string {
			return statsKeys(cmd, func(s *admin.StatsBody) map[string]int64 { return s.OpenByClass })
		},
		"event-type": func(cmd *cobra.Command) []string {
			return statsKeys(cmd, func(s *admin.StatsBody) map[string]int64 { return s.OpenByType })
		},
	} {
		err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return values(cmd), cobra.ShellCompDirectiveNoFileComp
		})
		if err != nil {
			panic(err) // no such flag
		}
	}
}

// forCompletion calls ask with the API, and a context bounded by completionTime.
func forCompletion(cmd *cobra.Command, ask func(context.Context, *operatorAPI) error) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	cmd.SetContext(ctx)
	_ = withAPI(cmd, "", func(api *operatorAPI) error { return ask(ctx, api) }) // a shell ignores errors
}

func statsKeys(cmd *cobra.Command, of func(*admin.StatsBody) map[string]int64) (keys []string) {
	forCompletion(cmd, func(ctx context.Context, api *operatorAPI) error {
		stats, err := api.Stats(ctx)
		if err == nil {
			keys = slices.Sorted(maps.Keys(of(&stats)))
		}
		return err
	})
	return keys
}

// completeJobs completes the id of a job, with a description.
func completeJobs(cmd *cobra.Command, args []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	forCompletion(cmd, func(ctx context.Context, api *operatorAPI) error {
		list, _, err := api.Jobs(ctx, time.Time{}, time.Time{}, adminclient.Paging{Limit: 20})
		for _, j := range list {
			ids = append(ids, j.ID+"\t"+string(j.State)+" "+string(j.Action)+" by "+cli.Clean(j.Actor, 30))
		}
		return err
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// completeSubscriptions completes the name of a subscription, with its topics.
func completeSubscriptions(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	c, err := new(apiFlags).client(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp // a shell ignores errors
	}
	all, _ := c.List(ctx)
	for _, s := range all {
		names = append(names, s.Name+"\t"+cli.Clean(strings.Join(s.Topics, ","), 60))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeDeadLetters completes event ids of open dead letters, with a description.
func completeDeadLetters(cmd *cobra.Command, args []string, _ string) (ids []string, _ cobra.ShellCompDirective) {
	forCompletion(cmd, func(ctx context.Context, api *operatorAPI) error {
		found, _, err := api.DeadLetters(ctx, dlq.Filter{Status: dlq.OpenStatuses}, adminclient.Paging{Limit: completed + len(args)})
		for _, l := range found {
			if !slices.Contains(args, l.EventID) {
				ids = append(ids, l.EventID+"\t"+string(l.Status)+" "+cli.Clean(l.EventType, 40)+": "+cli.Clean(l.ErrorClass, 40))
			}
		}
		return err
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// completed bounds the completions of one word.
const completed = 50
