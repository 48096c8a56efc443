package relay

import "github.com/gocql/gocql"

// byItself says that a letter is of a row that does not say its place in its
// aggregate, or not even its aggregate: it stands for one of its own (badRow). The
// relay whose stream has the row buries it, and that of the shard of its id replays
// it: what nothing is known of but its id belongs there.
func byItself(event gocql.UUID, aggregate string) bool { return aggregate == event.String() }

// ownLetter says whether an open letter is one of this shard's. What another relay
// replays though its row may come here again counts as out.
func (r *Relay) ownLetter(p *publisher, event gocql.UUID, aggregate string, written int64) bool {
	if r.own.HasText(aggregate) {
		return true
	}
	if byItself(event, aggregate) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.memory.has(event) {
			p.memory.addUnsent(event, written)
		}
	}
	return false
}
