package publish

import (
	"errors"

	"github.com/gocql/gocql"
)

var errInterrupted = errors.New("a relay before this one began to make it a dead letter, and may still end that")

// interrupted is the death of an event of which a relay before this one began to make
// a dead letter; nil of all others.
//
// That relay may have been killed. Or it stands still right before it stores the letter,
// and goes on, or the database does, when the event is out: the letter would be open
// again, and publish it once more. What is stored is stored once, so the event becomes
// a dead letter first, by whoever of the two comes first, and is published as that.
//
// A letter is listed before it is stored, and whoever stores it looks at the fence in
// between. So of all letters that may come late from an owner of before, the start has
// seen that they were begun. Called locked.
func (d *letters) interrupted(event gocql.UUID) *death {
	if _, ok := d.begun[event]; !ok {
		return nil
	}
	return &death{class: ClassInterrupted, err: errInterrupted}
}
