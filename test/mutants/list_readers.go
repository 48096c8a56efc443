package main

// readerMutants break the event streams, which read the topics.
var readerMutants = []mutant{
	{
		name: "a problem of a WebSocket is a plain text", file: "internal/stream/refusal.go", pkg: "./internal/stream", run: "RefusalsAreProblems",
		old: "if status >= http.StatusBadRequest {", new: "if status >= 600 {",
	},
	{
		name: "a slow client is not disconnected", file: "internal/stream/hub.go", pkg: "./internal/stream", run: "SlowOne",
		old: "		close(sub.dropped)\n", new: "",
	},
	{
		name: "a client that resumes misses events published during its catch-up", file: "internal/stream/subscription.go", pkg: "./internal/stream", run: "ResumesWithout",
		old: "			if at, _ := s.at.at(name, partition); at < until {", new: "			if at, _ := s.at.at(name, partition); at < min(until, 0) {",
	},
	{
		name: "the end of a transaction is waited for as an event", file: "internal/stream/subscription.go", pkg: "./internal/stream", run: "BehindATransaction",
		old: "kgo.KeepControlRecords(), ", new: "",
	},
	{
		name: "a topic that is created again is not read", file: "internal/stream/hub.go", pkg: "./internal/stream", run: "MadeAnew",
		old: "	h.client.PurgeTopicsFromConsuming(name)\n", new: "",
	},
	{
		name: "a client that resumes receives an event twice", file: "internal/stream/subscription.go", pkg: "./internal/stream", run: "Resumes",
		old: "			at, ok := from.at(name, partition)\n			if ok {", new: "			at, ok := from.at(name, partition)\n			at = max(0, at-1)\n			if ok {",
	},
	{
		name: "a topic created later is read from the time of its discovery", file: "internal/stream/follow.go", pkg: "./internal/stream", run: "Follow_TopicsThatComeLater",
		old: "		s.at[name] = map[int32]int64{}\n", new: "		_ = name\n",
	},
	{
		name: "a topic created while a client was away is read from its end", file: "internal/stream/position.go", pkg: "./internal/stream", run: "Follow_Resumes",
		old: "			out[name] = make(map[int32]int64)\n", new: "",
	},
	{
		name: "a page of another origin may open an event stream", file: "internal/stream/socket.go", pkg: "./internal/stream", run: "Foreign",
		old: "Subprotocols: []string{protocol}}", new: "Subprotocols: []string{protocol}, InsecureSkipVerify: true}",
	},
	{
		name: "partitions added later are not read", file: "internal/stream/hub.go", pkg: "./internal/stream", run: "ComesLater",
		old: "		if _, known := t.next[partition]; !known && o.Err == nil {", new: "		if _, known := t.next[partition]; !known && o.Err == nil && t.refs == 0 {",
	},
}
