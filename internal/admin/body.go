package admin

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

// form are the bounds of this API's own bodies; what they mean is checked against
// the description, by huma.
var form = jsonform.Bounds{Depth: 4, Members: 1000, Items: 100_000}

// strictJSON is huma's JSON but for what readers understand in different ways: a
// name twice, and null, which huma takes for a member that is left out. A
// dry_run that is null must not become a change.
var strictJSON = huma.Format{
	Marshal: huma.DefaultJSONFormat.Marshal,
	Unmarshal: func(data []byte, v any) error {
		err := jsonform.Check(data, form)
		if err == nil {
			err = jsonform.RefuseNull(data)
		}
		if err != nil {
			return err
		}
		return huma.DefaultJSONFormat.Unmarshal(data, v)
	},
}
