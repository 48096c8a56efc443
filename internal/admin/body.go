package admin

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

// form bounds the bodies of this API; huma validates them against the description.
var form = jsonform.Bounds{Depth: 4, Members: 1000, Items: 100_000}

// strictJSON is huma's JSON but refuses duplicate names and null, which parsers treat
// differently. huma treats null as an absent member, and a dry_run that is null must not
// become a change.
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
