package main

// dlqMutants break what is done with dead letters.
var dlqMutants = []mutant{
	{
		name: "the change of a disconnected caller counts as rejected", file: "internal/admin/routes.go", pkg: "./internal/admin", run: "ChangesAreAudited",
		old: "status == httpapi.StatusHungUp || said.OutcomeUnknown", new: "said.OutcomeUnknown",
	},
	{
		name: "a body that the audit reads has no deadline", file: "internal/admin/routes.go", pkg: "./internal/admin", run: "IsBounded",
		old: "_ = w.SetReadDeadline(time.Now().Add(bodyTimeout))", new: "",
	},
	{
		name: "the deadline of a body remains after the audit has read it", file: "internal/admin/routes.go", pkg: "./internal/admin", run: "HasNoDeadlineLeft",
		old: "	if w.asked != nil {\n		return nil\n", new: "	if false {\n		return nil\n",
	},
	unit("TestDeadLetters_ConditionsAndTheSameError", mutant{
		name: "the same error is retried without limit", file: "dlq/store_claim.go",
		old: "	case f.SameError > 0 && repeats >= f.SameError:\n",
		new: "	case false:\n",
	}),
	unit("TestDeadLetters_WaitForTheWindow", mutant{
		name: "a window never closes", file: "dlq/schedule.go",
		old: "return !began.IsZero() && !began.After(now)",
		new: "return !began.IsZero()",
	}),
	{
		name: "dlq: a published event leaves its dead letter open after another clock ended the claim", file: "dlq/store_claim.go", pkg: "./dlq", run: "TestResolveMany_AfterAnOperatorEndedTheClaim",
		old: "l.Status != Processing && unclaimed(l)", new: "l.Status != Processing && false",
	},
	{
		name: "dlq: an operator's clock alone ends a claim", file: "dlq/store_operate.go", pkg: "./dlq", run: "TestTransitions_Walk",
		old: "		if l.Status == Processing && !now.Before(l.ClaimedUntil) {", new: "		if false {",
	},
	{
		name: "dlq: a paused job does not name what failed in its canary", file: "dlq/jobs/worker.go", pkg: "./dlq/jobs", run: "TestRunner_Canary",
		old: "j.cursor.Failed = Paused, last, failing\n", new: "j.cursor.Failed = Paused, last, nil\n",
	},
	{
		name: "dlq: a text is not compared", file: "dlq/filter.go", pkg: "./dlq", run: "TestFilter_Text",
		old: " && f.contains(l)\n", new: "\n",
	},
	{
		name: "dlq: the texts of errors are not read", file: "dlq/listing.go", pkg: "./dlq", run: "TestList_IsWhatAScanFinds",
		old: "	if !l.texts {\n", new: "	if true {\n",
	},
	{
		name: "dlq: the record of another content resolves a dead letter", file: "dlq/store_claim.go", pkg: "./dlq", run: "TestResolveMany_AfterAnOperatorEndedTheClaim",
		old: "return l.EditedID == st.DeadLetter.EditedID }", new: "return true }",
	},
	{
		name: "dlq: an hour that was announced recently is removed from a list", file: "dlq/tidy.go", pkg: "./dlq", run: "TestTidy_",
		old: "before := ls.db.Clock.Now().Add(-ahead - announceKept)\n",
		new: "before := ls.db.Clock.Now()\n",
	},
	{
		name: "dlq: a removed tag keeps its list", file: "dlq/lists.go", pkg: "./dlq", run: "TestTidy_TablesAndTags",
		old: "		out = append(out, listKey{tag, t})\n", new: "		out = append(out, listKey{max(tag, kindOpenTag), t})\n",
	},
	{
		name: "dlq: a change of labels wakes the relay", file: "dlq/store_operate.go", pkg: "./dlq", run: "TestSet_ChangesLabelsOnly",
		old: "if !p.noRequest && (l.Status.Open()", new: "if (l.Status.Open()",
	},
	{
		name: "dlq: a limit by priority takes the latest failures", file: "dlq/jobs/priority.go", pkg: "./dlq/jobs", run: "ByPriority",
		old: "cmp.Compare(b.Priority, a.Priority), ", new: "",
	},
	{
		name: "dlq: the priority is not archived", file: "dlq/archive/record.go", pkg: "./dlq/archive", run: "TestRecord_",
		old: "Sequence: r.Sequence, Priority: r.Priority,", new: "Sequence: r.Sequence,",
	},
	{
		name: "a wrong priority prevents a dead letter", file: "dlq/labels.go", pkg: "./dlq", run: "TestParsePriority",
		old: "	return int(min(max(n, MinPriority), MaxPriority))", new: "	return int(min(max(n, MinPriority), 1000))",
	},
	{
		name: "retention: a restored dead letter is archived immediately", file: "dlq/archive/mover.go", pkg: "./dlq/archive", run: "ARestoredOneStays|BesideOperators",
		old: "|| restoredSince(c.History, p) {", new: "{",
	},
	{
		name: "retention: a process without an archive deletes beside one with it", file: "dlq/archive/sweep.go", pkg: "./dlq/archive", run: "BesideAnArchive",
		old: "now.Sub(last.Archived) > archiveGrace", new: "true",
	},
	{
		name: "retention: a broken archive counts as removed", file: "dlq/archive/sweep.go", pkg: "./dlq/archive", run: "BesideABrokenArchive",
		old: "	last.Archived = s.conf.Store.Now().UTC()\n	return s.save(ctx, duty, *last)\n", new: "	last.Archived = s.conf.Store.Now().UTC()\n	return nil\n",
	},
	{
		name: "retention: a failed dead letter that blocks others is deleted", file: "dlq/archive/mover.go", pkg: "./dlq/archive", run: "WithoutAnArchive|BesideOperators",
		old: "	if err != nil || held {\n		return err\n	}\n	if m.s", new: "	if err != nil || held && false {\n		return err\n	}\n	if m.s",
	},
	{
		name: "retention: a dead letter that changed is deleted", file: "dlq/archive/mover.go", pkg: "./dlq/archive", run: "AReplayWins",
		old: "l.Status), Version: l.Version,", new: "l.Status),",
	},
	{
		name: "dlq: a record without event type cannot be edited", file: "dlq/edit.go", pkg: "./dlq/archive", run: "TestSubscription_",
		old: "SubscriptionOf(l.Table); ok {\n		return nil", new: "SubscriptionOf(l.Table); ok && false {\n		return nil",
	},
	{
		name: "dlq: the retention of all applies to a table with its own", file: "dlq/archive/sweep.go", pkg: "./dlq/archive", run: "TestSweeper_RetentionOfATable",
		old: "own == (p.table != \"\") && ", new: "(own || true) && ",
	},
	{
		name: "dlq: a replay for a subscription needs a relay", file: "internal/admin/relay_problems.go", pkg: "./internal/admin", run: "TestPreview_ProblemsOfAReplay",
		old: "; !ok {", new: "; !ok || true {",
	},
	{
		name: "dlq: a job changes a dead letter twice beside another", file: "dlq/store_read.go", pkg: "./dlq", run: "ActsOnceBesideAnother",
		old: "	return version > 0, err", new: "	return version < 0, err",
	},
	{
		name: "dlq: a resumed job changes a dead letter twice", file: "dlq/store_read.go", pkg: "./dlq/jobs", run: "CrashesAtEveryWrite|TwoNeverActTwice",
		old: "		return job != none && l.job == job, nil", new: "		return false, nil",
	},
	{
		name: "dlq: a batch is counted when it begins, too", file: "dlq/jobs/worker.go", pkg: "./dlq/jobs", run: "CrashesAtEveryWrite|ReplaysFollows",
		old: "		j.batch = w.complete() + 1", new: "		j.batch = w.complete() + 1\n		j.cursor.Acted.Changed += len(ids)",
	},
	{
		name: "dlq: a paused job continues to the end of its batch", file: "dlq/jobs/worker.go", pkg: "./dlq/jobs", run: "PauseResumeCancel",
		old: "					stop(errStopActing)", new: "					_ = errStopActing",
	},
	{
		name: "dlq: the canary does not stop a job", file: "dlq/jobs/worker.go", pkg: "./dlq/jobs", run: "Canary",
		old: "		if same != \"\" && j.Canary", new: "		if same == \"none\" && j.Canary",
	},
	{
		name: "dlq: a dead letter names an edit that is not kept", file: "dlq/store_operate.go", pkg: "./dlq", run: "TestEdit_",
		old: "		if err = s.edits.keep(ctx, event, &edited); err == nil {", new: "		if edited.ID != (gocql.UUID{}) {",
	},
	{
		name: "dlq: an edit ignores a concurrent change", file: "dlq/store_operate.go", pkg: "./dlq", run: "TestEdit_Refuses",
		old: "	by.Version = expect", new: "	by.Version = 0",
	},
	{
		name: "dlq: an edit replays a blocked dead letter", file: "dlq/store_operate.go", pkg: "./dlq", run: "TestEdit_KeepsTheOriginal|Walk",
		old: "		if l.Status == Blocked {", new: "		if l.Status == Archived {",
	},
	{
		name: "api: a change is made although the audit trail cannot be written", file: "internal/admin/audit.go", pkg: "./internal/admin", run: "TestAudit_NothingIsDone",
		old: "		log.Warn(\"change refused: failed to write audit trail\", \"err\", err)\n		return why\n",
		new: "		log.Warn(\"change refused: failed to write audit trail\", \"err\", err, \"why\", why)\n",
	},
	{
		name: "api: the history counts what instances and their shards publish twice", file: "internal/admin/history.go", pkg: "./internal/admin", run: "TestHistory_CountsDifferences",
		old: "if h.Sharing != nil || h.StartedAt == nil {", new: "if h.StartedAt == nil {",
	},
	{
		name: "api: the history counts what was published before its first reading", file: "internal/admin/history.go", pkg: "./internal/admin", run: "TestHistory_CountsDifferences",
		old: "known || h.StartedAt.After(c.at) {", new: "known || h.StartedAt != nil {",
	},
	{
		name: "api: the history loses the events of a process that ended between two readings", file: "internal/admin/history.go", pkg: "./internal/admin", run: "TestHistory_CountsDifferences",
		old: "if h.Sharing != nil || h.StartedAt == nil {", new: "if h.Sharing != nil || h.StartedAt == nil || h.State == stateStopped {",
	},
	{
		name: "api: a status names a shard without an owner instead of the outage of the broker", file: "internal/admin/verdict.go", pkg: "./internal/admin", run: "TestStatus_TitleNamesTheCause",
		old: "	case b.Outage != nil:\n", new: "	case b.Outage != nil && unowned == nil:\n",
	},
	{
		name: "api: events that nobody reads do not count as waiting", file: "internal/admin/status.go", pkg: "./internal/admin", run: "TestStatus_TitleNamesTheCause",
		old: "		w.Events += int64(n)\n", new: "",
	},
	{
		name: "api: a request reads more than a week of the history", file: "internal/admin/history.go", pkg: "./internal/admin", run: "TestHistory_Periods",
		old: "		since = oldest\n", new: "		since = oldest.AddDate(0, 0, -1)\n",
	},
	{
		name: "a dead letter proves that the events before it are published", file: "relay/internal/earlier/earlier.go", pkg: "./relay/internal/earlier", run: "TestFinder_",
		old: "case Published:", new: "case Published, DeadLetter:",
	},
	{
		name: "the number of a settled dead letter counts as skipped", file: "relay/internal/publish/offer.go", pkg: "./relay/internal/publish", run: "TestGaps_ASettled",
		old: "if o.Owner && o.Event.Sequence > 0 {", new: "if false {",
	},
	{
		name: "api: a problem of the HTTP library has no type", file: "internal/httpapi/config.go", pkg: "./internal/admin", run: "RefusalsHaveTypes",
		old: "c.Transformers, Typed, inMilliseconds)", new: "c.Transformers, inMilliseconds)",
	},
	{
		name: "api: a job that discards is an operator's", file: "internal/admin/jobs.go", pkg: "./internal/admin", run: "TestAccess_",
		old: "		if a.action == action {\n			return a.role", new: "		if a.action == action {\n			return access.Operator",
	},
	{
		name: "api: a job that purges is an operator's", file: "internal/admin/jobs.go", pkg: "./internal/admin", run: "TestAccess_",
		old: "	return access.Admin // purge", new: "	return access.Operator // purge",
	},
	{
		name: "api: a dry run of a job makes it", file: "internal/admin/jobs.go", pkg: "./internal/admin", run: "TestArchives_PurgeListAndRestore",
		old: "	if b.DryRun {\n", new: "	if b.DryRun && b.Rate > 0 {\n",
	},
	{
		name: "api: If-Match goes no further than the header", file: "internal/admin/actions.go", pkg: "./internal/admin", run: "TestAct_OneOfMany|TestAct_Refused",
		old: "		by.Version = version\n", new: "",
	},
	{
		name: "api: dead letters are purged without an archive", file: "internal/admin/preview.go", pkg: "./internal/admin", run: "TestArchives_Refused",
		old: "b.Action == dlq.ActionPurge && !b.NoArchive) {", new: "false) {",
	},
	{
		name: "dlq: a purge leaves the stored edits", file: "dlq/store_purge.go", pkg: "./dlq/archive", run: "TestKeeper_",
		old: "	return s.removeEdits(ctx, event)\n", new: "	return nil\n",
	},
	{
		name: "dlq: a dead letter is purged though it changed since it was copied", file: "dlq/archive/move.go", pkg: "./dlq/archive", run: "TestKeeper_",
		old: "		by.Version = r.Version\n", new: "",
	},
	unit("TestDeadLetters_AnArchivedOneIsNotInItsTopic", mutant{
		name: "a dead letter that was archived before is in its topic", file: "relay/internal/publish/dead_letter.go",
		old: "p.ids.add(it, false)", new: "p.ids.add(it, true)",
	}),
	unit("TestReplayer_IsOutOnlyInItsTopic", mutant{
		name: "a replay ends for an event whose dead letter is settled", file: "relay/internal/publish/replay.go",
		old: "	_, _, in := r.p.ids.find(id)\n	return bool(in)\n", new: "	_, in, _ := r.p.ids.find(id)\n	return in\n",
	}),
	unit("TestDeadLetters_OneThatCannotBeStoredDelaysNoOther", mutant{
		name: "a dead letter that cannot be stored keeps its place", file: "relay/internal/publish/dead_letter.go",
		old: "		<-w.slots\n		err = retry.Wait(p.ctx, retry.Backoff(p.cfg.RetryMin, p.cfg.RetryMax, attempt))\n		w.slots <- struct{}{}",
		new: "		err = retry.Wait(p.ctx, retry.Backoff(p.cfg.RetryMin, p.cfg.RetryMax, attempt))\n		_ = struct{}{}",
	}),
	unit("TestDeadLetters_OneThatCannotBeStoredDelaysNoOther", mutant{
		name: "a dead letter that is stored late is dated by its first attempt", file: "relay/internal/publish/dead_letter.go",
		old: "		deadLetter.FirstFailedAt, deadLetter.LastFailedAt = now, now\n", new: "		_ = now\n",
	}),
	{
		name: "dlq: what failed writes listed stays listed", file: "dlq/store_write.go", pkg: "./dlq", run: "TestWrite_LaterLeaves",
		old: "append([]time.Time{row.FirstFailedAt}, row.listed...)", new: "[]time.Time{row.FirstFailedAt}",
	},
	{
		name: "dlq: a change that is made late is not announced", file: "dlq/store_operate.go", pkg: "./dlq", run: "TestRequests_OfAChangeThatIsMadeLate",
		old: "s.db.Millis().Sub(askedAt) < requestAgain", new: "s.db.Millis().Sub(askedAt) >= 0",
	},
	{
		name: "dlq: a purge that stops removes the edits of a restore", file: "dlq/store_purge.go", pkg: "./dlq", run: "TestPurge_ThatStops",
		old: "	if purged == nil { // it is restored, or forgotten with its edits\n		return nil\n	}\n", new: "	if purged == nil {\n		now := time.Now().UnixMicro()\n		purged = &now\n	}\n",
	},
	{
		name: "dlq: a missing edit prevents the claims of others", file: "dlq/store_read.go", pkg: "./dlq", run: "TestClaimMany_BesideAMissingEdit",
		old: "			delete(out, id)\n", new: "			return nil, err\n",
	},
	unit("TestReplay_EndsWithItsClaim", mutant{
		name: "a replay that waits is sent behind its claim", file: "relay/internal/publish/send.go",
		old: "case l.replay != nil && !l.replay.isClaimed():", new: "case false:",
	}),
}
