package subscriptions

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
)

// Message is a delivery of a record to a consumer. Package wire encodes it.
type Message struct {
	// Receipt names this delivery: Ack, Nack, Extend and Reject take it.
	Receipt string `json:"receipt,omitempty" doc:"Names this delivery for ack, nack, extend, reject and release; absent with auto_ack"`
	// Attempt counts the deliveries. Deliveries that ended with the failure of their owner
	// may be missing from it.
	Attempt    int `json:"attempt" doc:"Number of deliveries of the message, from 1"`
	MaxReceive int `json:"max_receive" doc:"Number of deliveries after which the message becomes a dead letter"`
	// LeaseUntil is by the owner's clock.
	LeaseUntil time.Time `json:"lease_until,omitzero" doc:"End of the lease; absent with auto_ack"`
	kafkarecord.Event
}

// HeaderMaxReceive is the header of a message that replaces Subscription.MaxReceive.
const HeaderMaxReceive = "outbox-max-receive"

// Limits of requests.
const (
	// MaxMessages is the maximum of Receive.Max.
	MaxMessages = 1000
	// MaxWait is the maximum of Receive.Wait.
	MaxWait = 20 * time.Second
	// MaxReceipts is the maximum number of receipts of one Settle.
	MaxReceipts = 1000
	// MaxDelay is the maximum delay of Nack and Extend.
	MaxDelay = MaxVisibilityTimeout
)

// Receive is a request for messages.
type Receive struct {
	// Max is the maximum number of messages, 1 to MaxMessages.
	Max int
	// Wait is the time to wait for the first message, up to MaxWait. The response
	// contains the messages that are available then, without waiting for Max.
	Wait time.Duration
	// MaxPerKey is the maximum number of consecutive messages of one key, a run; 0 is 1.
	// Process and settle a run in its order: what ends the lease of one message except Ack
	// returns the later ones, whose deliveries do not count. A run has one lease: an
	// extension of one message is that of all.
	MaxPerKey int
	// AutoAck acknowledges the messages before they are returned: delivery is then at
	// most once.
	AutoAck bool
	// VisibilityTimeout replaces that of the subscription unless 0.
	VisibilityTimeout time.Duration
	// Consumer is the name of the caller in Lease and Status.
	Consumer string
}

// Action is a request for one receipt.
type Action string

// The actions.
const (
	// ActionAck settles the message.
	ActionAck Action = "ack"
	// ActionNack ends the lease as a failed delivery. Delay replaces the backoff.
	ActionNack Action = "nack"
	// ActionRelease ends the lease without counting the delivery; the message can be
	// delivered immediately.
	ActionRelease Action = "release"
	// ActionExtend sets the end of the lease to Delay from now.
	ActionExtend Action = "extend"
	// ActionReject dead-letters the message now. Reason is the error of the dead letter.
	ActionReject Action = "reject"
)

// Settle is the request to apply an action to one receipt.
type Settle struct {
	Action  Action
	Receipt string
	// Delay is that of Nack (0: the backoff of the subscription) and Extend (0: its
	// visibility timeout), up to MaxDelay.
	Delay time.Duration
	// Reason is the consumer's error for Nack and Reject; bounded to 2,000 bytes.
	Reason string
	// Details are the details of Reason, such as a stack, bounded to MaxDetails bytes. The dead
	// letter has the details of the last failure; others are not kept.
	Details string
}

// MaxDetails bounds Settle.Details, in bytes.
const MaxDetails = 16 << 10

// Code is the result of one Settle.
type Code string

// The codes. Only CodeUnknown and CodeUnavailable may be retried with the same receipt.
const (
	// CodeOK: the action is durable.
	CodeOK Code = "ok"
	// CodeLeaseExpired: the lease has ended, by time, by an earlier action with another
	// result or by a change of the owner. Nothing was changed. The message may be
	// delivered again.
	CodeLeaseExpired Code = "lease_expired"
	// CodeOutOfOrder: an earlier message of the run is not settled; settle it first. Nothing
	// was changed.
	CodeOutOfOrder Code = "out_of_order"
	// CodeInvalid: the receipt is no receipt of this subscription.
	CodeInvalid Code = "invalid_receipt"
	// CodeUnknown: the action was applied in memory, and its durability is unknown.
	CodeUnknown Code = "unknown"
	// CodeUnavailable: the owner or the database was not reachable; nothing is known to
	// have changed.
	CodeUnavailable Code = "unavailable"
)

// Result is the result of one Settle, in the order of the requests. Package wire encodes it.
type Result struct {
	Code       Code      `json:"code" enum:"ok,lease_expired,out_of_order,invalid_receipt,unknown,unavailable" doc:"ok: the action is durable. lease_expired: nothing was changed, the message may be delivered again. out_of_order: nothing was changed, an earlier message of the run is not settled. unknown, unavailable: repeat the request"`
	Error      string    `json:"error,omitempty" doc:"Reason of codes other than ok"`
	LeaseUntil time.Time `json:"lease_until,omitzero" doc:"New end of the lease after extend"`
}
