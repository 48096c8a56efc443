package admin

import (
	"github.com/danielgtaylor/huma/v2"
	jsonv2 "github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

// form bounds the bodies of this API; huma validates them against the description.
var form = jsonform.Bounds{Depth: 4, Members: 1000, Items: 100_000}

// strictJSON is the JSON of httpapi but refuses duplicate names and null, which parsers treat
// differently. huma treats null as an absent member, and a dry_run that is null must not
// become a change. A whole number may have the form 201.0.
var strictJSON = huma.Format{
	Marshal: httpapi.MarshalBody,
	Unmarshal: func(data []byte, v any) error {
		err := jsonform.Check(data, form)
		if err == nil {
			err = jsonform.RefuseNull(data)
		}
		if err != nil {
			return err
		}
		return jsonv2.Unmarshal(data, v, jsonv1.DefaultOptionsV1(), jsonform.WholeNumbers)
	},
}
