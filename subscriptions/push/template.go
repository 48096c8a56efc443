package push

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
)

const (
	defaultTitle = `{{.event_type}} {{.aggregate_type}} {{.aggregate_id}}`
	defaultText  = `{{.topic}}[{{.partition}}]@{{.offset}}, sequence {{.sequence}}, event {{.event_id}}, {{.time}}
{{with .data}}{{json .}}{{else}}{{.data_text}}{{end}}`
	// maxText bounds a text, in bytes.
	maxText = 16 << 10
	// maxTitle bounds a title, in characters.
	maxTitle = 200
)

// functions are available beside the ones that text/template has.
var functions = template.FuncMap{
	// json writes a value as JSON, such as all of .data.
	"json": func(v any) (string, error) {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		err := enc.Encode(v)
		return strings.TrimSuffix(b.String(), "\n"), err
	},
}

// text is a template over an event. It is safe for concurrent use.
type text struct{ template *template.Template }

// parseText reads the template of a field. A name that no event has is an error.
func parseText(field, of string) (*text, error) {
	t, err := template.New(field).Funcs(functions).Parse(of)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", field, strings.TrimPrefix(err.Error(), "template: "))
	}
	known := view(&kafkarecord.Event{}, "")
	var unknown []string
	walk(t.Root, true, func(field string) {
		if _, ok := known[field]; !ok && !slices.Contains(unknown, field) {
			unknown = append(unknown, field)
		}
	})
	if len(unknown) > 0 {
		return nil, fmt.Errorf("%s: an event has no %s; it has topic, partition, offset, at, key, event_id, event_type, aggregate_id, aggregate_type, "+
			"sequence, time, content_type, headers, data, data_text and subscription", field, strings.Join(unknown, ", "))
	}
	return &text{t}, nil
}

// view is the event by the names that its JSON has.
func view(e *kafkarecord.Event, subscription string) map[string]any {
	v := map[string]any{
		"topic": e.Topic, "partition": e.Partition, "offset": e.Offset, "at": e.At, "key": e.Key, "event_id": e.ID, "event_type": e.Type,
		"aggregate_id": e.AggregateID, "aggregate_type": e.AggregateType, "sequence": e.Sequence, "time": e.Time, "content_type": e.ContentType,
		"headers": e.Headers, "data": nil, "data_text": "", "subscription": subscription,
		"rule": subscription, // the name that rules of former versions use
	}
	if e.Data != nil {
		dec := json.NewDecoder(bytes.NewReader(e.Data))
		dec.UseNumber() // unchanged, not as 1e+06
		var data any
		if dec.Decode(&data) == nil {
			v["data"] = data
		}
	}
	if e.Text != nil {
		v["data_text"] = *e.Text
	}
	return v
}

// errTooLong ends the execution of a template.
var errTooLong = errors.New("the text is too long")

// bounded is a buffer of limited size.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if free := maxText - b.Len(); len(p) > free {
		b.Buffer.Write(p[:free])
		return free, errTooLong
	}
	return b.Buffer.Write(p)
}

// of writes the text of an event, cut where it is too long.
func (t *text) of(v map[string]any) (string, error) {
	var b bounded
	err := t.template.Execute(&b, v)
	if errors.Is(err, errTooLong) {
		return strings.ToValidUTF8(b.String(), "") + "…", nil
	}
	return b.String(), err
}

// walk calls f with the fields of the event that a template uses; top reports
// that the dot is the event.
func walk(n parse.Node, top bool, f func(string)) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, m := range n.Nodes {
				walk(m, top, f)
			}
		}
	case *parse.ActionNode:
		walk(n.Pipe, top, f)
	case *parse.PipeNode:
		if n != nil {
			for _, c := range n.Cmds {
				for _, a := range c.Args {
					walk(a, top, f)
				}
			}
		}
	case *parse.FieldNode:
		if top {
			f(n.Ident[0])
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			f(n.Ident[1])
		}
	case *parse.ChainNode:
		walk(n.Node, top, f)
	case *parse.IfNode:
		walkBranch(&n.BranchNode, top, top, f)
	case *parse.WithNode:
		walkBranch(&n.BranchNode, top, false, f)
	case *parse.RangeNode:
		walkBranch(&n.BranchNode, top, false, f)
	}
}

func walkBranch(n *parse.BranchNode, top, inside bool, f func(string)) {
	walk(n.Pipe, top, f)
	walk(n.List, inside, f)
	walk(n.ElseList, top, f)
}
