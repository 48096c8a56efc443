package main

// pushMutants break what push delivery and its texts promise.
var pushMutants = []mutant{
	inPush("Hang", mutant{
		name: "push: the lease of a call that hangs expires", old: "			q.Extend(l.Offset, l.Lease, now, now.Add(2*timeout))\n", new: "			_ = q\n			_ = now\n",
	}),
	inPush("Rebalance", mutant{
		name: "push: partitions are released during calls", file: "subscriptions/engine/partition.go",
		old: "p.mu.q.Counts().Leased == 0)", new: "true)",
	}),
	inPush("Retries", mutant{
		name: "push: a permanent error is retried", old: "			action = queue.Reject\n", new: "			action = queue.Nack\n",
	}),
	inPush("InOrderOfKeys", mutant{
		name: "push: the place of a call is not free again", old: "		<-u.slots\n		done <- err\n", new: "		done <- err\n",
	}),
	inPush("Destinations", mutant{
		name: "push: a changed destination is not used", old: "	return a == b || a != nil", new: "	return true || a != nil",
	}),
	{
		name: "push: a wrong text is accepted", file: "subscriptions/plugin/notice.go", pkg: "./subscriptions/plugin", run: "BadOnes",
		old: "	if bad != nil {\n", new: "	if bad != nil && p.Text == \"\" {\n",
	},
	inText("OfAnEvent", mutant{
		name: "text: braces in a literal end an expression", old: "		token := tokens.FindStringIndex(text[at:])\n", new: "		token := regexp.MustCompile(\"[{}]\").FindStringIndex(text[at:])\n",
	}),
	inText("OfAnEvent", mutant{
		name: "text: braces of a map end an expression", old: "			depth++\n", new: "			depth = 0\n",
	}),
	inText("OfAnEvent", mutant{
		name: "text: an error is not visible", old: "		return \"<\" + err.Error() + \">\"\n", new: "		return \"\"\n",
	}),
	inText("ErrorsSayWhere", mutant{
		name: "text: the position is that in the expression", old: "expression[:end], from, nothing", new: "expression[:end], start, nothing",
	}),
	inText("IsBounded", mutant{
		name: "text: each expression has the whole cost", old: "		*spent += *n\n", new: "		*spent = *n\n",
	}),
	inText("IsBounded", mutant{
		name: "text: the function json costs nothing", old: "uint64(len(text))/10", new: "uint64(len(text))/1e9",
	}),
	inText("IsBounded", mutant{
		name: "text: a long text is not cut", old: "		if b.Len() > MaxText {\n", new: "		if b.Len() > 2*MaxText {\n",
	}),
	inMail("MailToSeveral", mutant{name: "mail: an error for one recipient ends the call", old: "			errs = append(errs, fmt.Errorf", new: "			return err\n			errs = append(errs, fmt.Errorf"}),
	inMail("MailIsEncrypted", mutant{name: "mail: the certificate is not verified", old: "InsecureSkipVerify: m.config.SkipTLSVerify", new: "InsecureSkipVerify: true"}),
	inMail("MailNeeds", mutant{name: "mail: required encryption is optional", old: "		case m.config.RequireStartTLS:\n", new: "		case false:\n"}),
	inMail("MailEnds", mutant{
		name: "mail: a server that does not answer holds a call", old: "	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })", new: "	stop := context.AfterFunc(ctx, func() {})",
	}),
	{
		name: "notify: the words of a header of generic:// are one word", file: "notify/generic.go", pkg: "./notify", run: "GenericPosts",
		old: "			s.header.Set(dashed(header), values[0])", new: "			s.header.Set(header, values[0])",
	},
	{
		name: "notify: a new service of shoutrrr is unknown", file: "notify/services.go", pkg: "./notify", run: "AreThoseOfShoutrrr",
		old: "	\"zulip\": ", new: "	\"zulip2\": ",
	},
	{
		name: "schema: an unknown parameter of a migration stays in its text", file: "schema/migration.go", pkg: "./schema", run: "Migration_Render",
		old: "strings.Cut(text, \"{{\"); ok {", new: "strings.Cut(text, \"{{\"); ok && false {",
	},
	{
		name: "schema: a clause for tablets is empty", file: "schema/migration.go", pkg: "./schema", run: "Migration_Render",
		old: "	if p.TabletsClause == \"\" {\n", new: "	if p.TabletsClause == \"x\" {\n",
	},
	{
		name: "a constant map with a key of bytes ends the process", file: "internal/filter/filter.go", pkg: "./internal/filter", run: "RefusesMaps",
		old: "if r := recover(); r != nil {", new: "if r := any(nil); r != nil {",
	},
	{
		name: "cli: the version replaces the help", file: "internal/cli/errors.go", pkg: "./internal/cli", run: "Version",
		old: "*version && !asked {", new: "*version && (!asked || true) {",
	},
}

func inText(run string, m mutant) mutant {
	m.file, m.pkg, m.run = "internal/filter/text.go", "./internal/filter", "TestText_.*("+run+")"
	return m
}

func inMail(run string, m mutant) mutant {
	m.file, m.pkg, m.run = "notify/mail.go", "./notify", "TestURL_.*("+run+")"
	return m
}

func inPush(run string, m mutant) mutant {
	m.pkg, m.run = "./subscriptions/engine", "TestPush_.*("+run+")"
	if m.file == "" {
		m.file = "subscriptions/engine/push.go"
	}
	return m
}
