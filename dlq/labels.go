package dlq

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Limits of priorities and tags.
const (
	MinPriority = -100
	MaxPriority = 100
	// MaxTags limits the tags of a dead letter. Each one is an entry in a list.
	MaxTags = 16
	// TagPattern is the form of a tag.
	TagPattern = `^[A-Za-z0-9][A-Za-z0-9._:/=@+-]{0,63}$`
)

var tagForm = regexp.MustCompile(TagPattern)

// ParsePriority returns the priority in a header, outbox.HeaderPriority. Values beyond the limits count as the limit,
// other texts as 0: a wrong header must not prevent a dead letter.
func ParsePriority(text string) int {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil && n == 0 { // out of range: n is the limit
		return 0
	}
	return int(min(max(n, MinPriority), MaxPriority))
}

// Labels is a change of the priority and the tags of a dead letter.
type Labels struct {
	// Priority, unless nil, is the new priority.
	Priority *int `json:"priority,omitempty"`
	// AddTags and RemoveTags are added and removed. A tag that is in both is refused.
	AddTags    []string `json:"add_tags,omitempty" nullable:"false"`
	RemoveTags []string `json:"remove_tags,omitempty" nullable:"false"`
}

// Empty reports whether the change changes nothing.
func (c *Labels) Empty() bool {
	return c.Priority == nil && len(c.AddTags)+len(c.RemoveTags) == 0
}

// Validate returns all errors of c, which has to change something.
func (c *Labels) Validate() error {
	var errs []error
	if c.Empty() {
		errs = append(errs, errors.New("nothing to set: name a priority, a tag to add or a tag to remove"))
	}
	if c.Priority != nil {
		errs = append(errs, checkPriority(*c.Priority))
	}
	errs = append(errs, checkTags(c.AddTags))
	for _, t := range c.AddTags {
		if slices.Contains(c.RemoveTags, t) {
			errs = append(errs, fmt.Errorf("tag %q: it is added and removed; choose one", t))
		}
	}
	return errors.Join(errs...)
}

func checkPriority(p int) error {
	if p < MinPriority || p > MaxPriority {
		return fmt.Errorf("priority %d: must be between %d and %d", p, MinPriority, MaxPriority)
	}
	return nil
}

func checkTags(tags []string) error {
	var errs []error
	for _, t := range tags {
		if !tagForm.MatchString(t) {
			errs = append(errs, fmt.Errorf("tag %q: use 1 to 64 letters, digits and ._:/=@+-, the first a letter or digit", t))
		}
	}
	if len(tags) > MaxTags {
		errs = append(errs, fmt.Errorf("%d tags: a dead letter has at most %d", len(tags), MaxTags))
	}
	return errors.Join(errs...)
}

// sortTags returns the tags in order, each once; nil without any.
func sortTags(tags []string) []string {
	if len(tags) == 0 {
		return nil
	}
	out := slices.Clone(tags)
	slices.Sort(out)
	return slices.Compact(out)
}

// of returns the priority and tags of l after the change.
func (c *Labels) of(l *DeadLetter) (priority int, tags []string) {
	priority = l.Priority
	if c.Priority != nil {
		priority = *c.Priority
	}
	tags = append(slices.Clone(l.Tags), c.AddTags...)
	return priority, sortTags(slices.DeleteFunc(tags, func(t string) bool { return slices.Contains(c.RemoveTags, t) }))
}

// labelsChanged describes a change of labels for the history.
func labelsChanged(l *DeadLetter, priority int, tags []string) string {
	var parts []string
	if priority != l.Priority {
		parts = append(parts, fmt.Sprintf("priority %d to %d", l.Priority, priority))
	}
	for _, t := range tags {
		if !slices.Contains(l.Tags, t) {
			parts = append(parts, "tag "+t+" added")
		}
	}
	for _, t := range l.Tags {
		if !slices.Contains(tags, t) {
			parts = append(parts, "tag "+t+" removed")
		}
	}
	return strings.Join(parts, ", ")
}
