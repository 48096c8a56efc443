package orders

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// EventTypes are all event types, in the order of the lifecycle.
var EventTypes = []string{EventCreated, EventUpdated, EventCancelled}

// Publication describes where a relay publishes the events of orders. The zero
// value is a relay with its default topics and source.
type Publication struct {
	// Topics are the topics by event type. A missing one is named like the type.
	Topics map[string]string
	// Source is the header ce_source; empty for any.
	Source string
	// Brokers are the servers of the description, as host:port. Without brokers it
	// has no servers.
	Brokers []string
	// TLS reports whether the brokers require TLS, SASL the mechanism as kafka.sasl
	// names it; empty for none.
	TLS  bool
	SASL string
}

type object = map[string]any

// AsyncAPI returns the AsyncAPI 3.0 document of the topics with the events of
// orders, as JSON: a channel for each topic, and a message for each event type
// with its key, headers and payload.
func (p Publication) AsyncAPI() ([]byte, error) {
	registry := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	payload := registry.Schema(reflect.TypeFor[Order](), true, "")
	schemas := object{"CloudEvent": p.headers()}
	for name, s := range registry.Map() {
		s.AdditionalProperties = nil // a later version may add fields
		schemas[name] = s
	}
	servers, schemes := p.servers()
	channels, messages, operations := object{}, object{}, object{}
	for _, eventType := range EventTypes {
		topic := p.topic(eventType)
		messages[eventType] = object{
			"name": eventType, "contentType": outbox.DefaultContentType, "payload": payload,
			"summary": map[string]string{
				EventCreated: "A new order", EventUpdated: "A changed, confirmed or shipped order", EventCancelled: "A cancelled order",
			}[eventType] + "; the whole order, as it is after the event",
			"headers": object{
				"type": "object", "allOf": []object{ref("schemas", "CloudEvent")},
				"properties": object{outbox.HeaderType: object{"type": "string", "const": eventType}},
			},
			"bindings": object{"kafka": object{
				"key": object{"type": "string", "format": "uuid", "description": "The order's id"}, "bindingVersion": kafkaBinding,
			}},
		}
		channel, ok := channels[topic].(object)
		if !ok {
			channel = object{
				"address": topic, "messages": object{}, "bindings": object{"kafka": object{"bindingVersion": kafkaBinding}},
				"description": "Events of one order are in one partition, in the order of " + outbox.HeaderSequence + ".",
			}
			channels[topic] = channel
		}
		channel["messages"].(object)[eventType] = ref("messages", eventType) //nolint:forcetypeassert // set above
		operations["publish"+eventType] = object{
			"action": "send", "channel": object{"$ref": "#/channels/" + topic},
			"messages": []object{{"$ref": "#/channels/" + topic + "/messages/" + eventType}},
		}
	}
	components := object{"schemas": schemas, "messages": messages}
	doc := object{
		"asyncapi": "3.0.0", "defaultContentType": outbox.DefaultContentType,
		"info": object{
			"title": "Events of orders", "version": "1.0.0", "license": object{"name": "Apache 2.0"},
			"description": "Each record is an event in the binary mode of CloudEvents. A repeated event has the same " + outbox.HeaderID + ". " +
				"Accept fields and headers that are not described.",
		},
		"channels": channels, "operations": operations, "components": components,
	}
	if len(servers) > 0 {
		doc["servers"] = servers
	}
	if len(schemes) > 0 {
		components["securitySchemes"] = schemes
	}
	return json.MarshalIndent(doc, "", "  ")
}

// kafkaBinding is the version of the Kafka bindings.
const kafkaBinding = "0.5.0"

func ref(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }

func (p Publication) topic(eventType string) string {
	if t := p.Topics[eventType]; t != "" {
		return t
	}
	return eventType
}

// headers returns the schema of the record headers. Their values are text.
func (p Publication) headers() object {
	text := func(description string) object { return object{"type": "string", "description": description} }
	fixed := func(value string) object { return object{"type": "string", "const": value} }
	uuid := func(description string) object {
		return object{"type": "string", "format": "uuid", "description": description}
	}
	number := func(description string) object {
		return object{"type": "string", "pattern": "^[1-9][0-9]*$", "description": description}
	}
	source := text("Publisher")
	if p.Source != "" {
		source["const"] = p.Source
	}
	required := object{
		outbox.HeaderID:            uuid("Event id"),
		outbox.HeaderSource:        source,
		outbox.HeaderSpecVersion:   fixed(outbox.SpecVersion),
		outbox.HeaderType:          text("Event type"),
		outbox.HeaderSubject:       uuid("The order's id"),
		outbox.HeaderTime:          object{"type": "string", "format": "date-time", "description": "Time of the change"},
		outbox.HeaderSequence:      number("The order's version"),
		outbox.HeaderAggregateType: fixed(AggregateType),
		outbox.HeaderContentType:   fixed(outbox.DefaultContentType),
	}
	all := object{
		outbox.HeaderTable: text("Keyspace and name of the outbox table"),
		outbox.HeaderEpoch: number("Epoch of the event, if the database was restored: compared before the version"),
		outbox.HeaderCaptured: object{
			"type": "string", "description": "Reader that found the event",
			"enum": []string{rows.CapturedTail, rows.CapturedSweep, rows.CapturedKey, rows.CapturedBackfill},
		},
		outbox.HeaderAttempts:    number("Number of the attempt that published the record, if not the first"),
		outbox.HeaderBreaker:     text("State of the relay's circuit breaker, if not closed"),
		outbox.HeaderBackfill:    fixed("1"),
		outbox.HeaderOriginalID:  uuid("Event id in the outbox, if an operator edited the event"),
		outbox.HeaderDataSchema:  text("URL of the schema that the payload fits"),
		outbox.HeaderTraceParent: text("W3C trace context of the request"),
		outbox.HeaderTraceState:  text("W3C trace context of the request"),
		outbox.HeaderRequestID:   text("Id of the request"),
	}
	maps.Copy(all, required)
	return object{"type": "object", "required": slices.Sorted(maps.Keys(required)), "properties": all}
}

// servers returns the brokers and the security schemes that they have.
func (p Publication) servers() (servers, schemes object) {
	protocol := "kafka"
	if p.TLS {
		protocol = "kafka-secure"
	}
	schemes = object{}
	kind := map[string]string{"plain": "plain", "scram-sha-256": "scramSha256", "scram-sha-512": "scramSha512"}[p.SASL]
	if kind != "" {
		schemes["sasl"] = object{"type": kind}
	}
	servers = object{}
	for i, host := range p.Brokers {
		s := object{"host": host, "protocol": protocol}
		if kind != "" {
			s["security"] = []object{ref("securitySchemes", "sasl")}
		}
		servers[fmt.Sprintf("broker-%d", i+1)] = s
	}
	return servers, schemes
}
