package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// Types of the problems that are the same in every API. They identify the kind of problem
// and cannot be resolved. Each API declares its own types beside these.
const (
	TypeMalformed    = "urn:scylla-outbox:problem:malformed-body"
	TypeInvalid      = "urn:scylla-outbox:problem:invalid-fields"
	TypeMedia        = "urn:scylla-outbox:problem:unsupported-media-type"
	TypeTooLarge     = "urn:scylla-outbox:problem:body-too-large"
	TypeTooSlow      = "urn:scylla-outbox:problem:body-too-slow"
	TypeRate         = "urn:scylla-outbox:problem:too-many-requests"
	TypeUnauthorized = "urn:scylla-outbox:problem:unauthorized"
	TypeForbidden    = "urn:scylla-outbox:problem:forbidden"
	TypeCrossSite    = "urn:scylla-outbox:problem:cross-site-request"
	TypeHost         = "urn:scylla-outbox:problem:foreign-host"
	TypeIdentity     = "urn:scylla-outbox:problem:identity-unavailable"
	TypeNoPath       = "urn:scylla-outbox:problem:no-such-path"
	TypeMethod       = "urn:scylla-outbox:problem:method-not-allowed"
	TypeStopping     = "urn:scylla-outbox:problem:stopping"
	TypeUnavailable  = "urn:scylla-outbox:problem:database-unavailable"
	TypeOverloaded   = "urn:scylla-outbox:problem:overloaded"
	TypeInternal     = "urn:scylla-outbox:problem:internal"
)

// Typed is a transformer that sets the missing types of huma's own problems, and their titles.
func Typed(_ huma.Context, _ string, v any) (any, error) {
	e, ok := v.(*huma.ErrorModel)
	if !ok || e.Type != "" {
		return v, nil
	}
	switch e.Status {
	case http.StatusBadRequest:
		e.Type = TypeMalformed
	case http.StatusRequestTimeout:
		e.Type = TypeTooSlow
	case http.StatusRequestEntityTooLarge:
		e.Type = TypeTooLarge
	case http.StatusUnsupportedMediaType:
		e.Type = TypeMedia
	case http.StatusUnprocessableEntity:
		e.Type = TypeInvalid
	default:
		e.Type = TypeInternal
	}
	e.Title = Title(e.Status, e.Type)
	return e, nil
}
