package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// Types of problems. They identify a kind of problem, which catalogue describes, and cannot be
// resolved.
const (
	TypeMalformed            = "urn:scylla-outbox:problem:malformed-body"
	TypeHandshake            = "urn:scylla-outbox:problem:bad-handshake"
	TypeUnauthorized         = "urn:scylla-outbox:problem:unauthorized"
	TypeForbidden            = "urn:scylla-outbox:problem:forbidden"
	TypeCrossSite            = "urn:scylla-outbox:problem:cross-site-request"
	TypeHost                 = "urn:scylla-outbox:problem:foreign-host"
	TypeNoPath               = "urn:scylla-outbox:problem:no-such-path"
	TypeNotFound             = "urn:scylla-outbox:problem:not-found"
	TypeOrderNotFound        = "urn:scylla-outbox:problem:order-not-found"
	TypeMessageNotFound      = "urn:scylla-outbox:problem:message-not-found"
	TypeSubscriptionNotFound = "urn:scylla-outbox:problem:subscription-not-found"
	TypeTopicNotFound        = "urn:scylla-outbox:problem:topic-not-found"
	TypeMethod               = "urn:scylla-outbox:problem:method-not-allowed"
	TypeTooSlow              = "urn:scylla-outbox:problem:body-too-slow"
	TypeRefused              = "urn:scylla-outbox:problem:refused"
	TypeCancelled            = "urn:scylla-outbox:problem:already-cancelled"
	TypeShipped              = "urn:scylla-outbox:problem:already-shipped"
	TypeConfirmed            = "urn:scylla-outbox:problem:already-confirmed"
	TypeUnconfirmed          = "urn:scylla-outbox:problem:not-confirmed"
	TypeTooManyChanges       = "urn:scylla-outbox:problem:too-many-changes"
	TypeTooLate              = "urn:scylla-outbox:problem:message-too-late"
	TypeNotWaiting           = "urn:scylla-outbox:problem:message-not-waiting"
	TypeLeaseExpired         = "urn:scylla-outbox:problem:lease-expired"
	TypeStale                = "urn:scylla-outbox:problem:stale-version"
	TypeTooLarge             = "urn:scylla-outbox:problem:body-too-large"
	TypeMedia                = "urn:scylla-outbox:problem:unsupported-media-type"
	TypeInvalid              = "urn:scylla-outbox:problem:invalid-fields"
	TypeKeyReuse             = "urn:scylla-outbox:problem:idempotency-key-reuse"
	TypeReceipt              = "urn:scylla-outbox:problem:invalid-receipt"
	TypeUpgrade              = "urn:scylla-outbox:problem:upgrade-required"
	TypeNeedsMatch           = "urn:scylla-outbox:problem:if-match-required"
	TypeRate                 = "urn:scylla-outbox:problem:too-many-requests"
	TypeQuota                = "urn:scylla-outbox:problem:quota-used-up"
	TypeTooManyWaiting       = "urn:scylla-outbox:problem:too-many-waiting"
	TypeTooManyWatchers      = "urn:scylla-outbox:problem:too-many-watchers"
	TypeTooManyListeners     = "urn:scylla-outbox:problem:too-many-listeners"
	TypeTooManyReads         = "urn:scylla-outbox:problem:too-many-reads"
	TypeInternal             = "urn:scylla-outbox:problem:internal"
	TypeOverloaded           = "urn:scylla-outbox:problem:overloaded"
	TypeUnavailable          = "urn:scylla-outbox:problem:database-unavailable"
	TypeNoSubscriptions      = "urn:scylla-outbox:problem:subscriptions-unavailable"
	TypeBroker               = "urn:scylla-outbox:problem:broker-unavailable"
	TypeIdentity             = "urn:scylla-outbox:problem:identity-unavailable"
	TypeUnknown              = "urn:scylla-outbox:problem:outcome-unknown"
	TypeStopping             = "urn:scylla-outbox:problem:stopping"
)

// TypeHungUp is the type of problems with StatusHungUp, which no client receives.
const TypeHungUp = blank

// blank is the type of RFC 9457 for problems that mean no more than their status.
const blank = "about:blank"

// SetProblemTypes is a transformer that sets the missing types of huma's own problems, and their titles.
func SetProblemTypes(_ huma.Context, _ string, v any) (any, error) {
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
	case http.StatusInternalServerError:
		e.Type = TypeInternal
	default:
		e.Type, e.Title = blank, http.StatusText(e.Status)
		return e, nil
	}
	e.Title = Title(e.Type)
	return e, nil
}
