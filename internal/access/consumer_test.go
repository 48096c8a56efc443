package access

import (
	"net/http"
	"strings"
	"testing"
)

func TestConsumer_MayConsumeItsSubscriptionsOnly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		role, name string
		want       bool
	}{
		{"consumer(orders-*|mail)", "orders-eu", true},
		{"consumer(orders-*|mail)", "mail", true},
		{"consumer(orders-*|mail)", "mail2", false},
		{"consumer(orders-*|mail)", "my-orders-eu", false},
		{"consumer(orders-*|mail)", "orders", false},
		{"consumer", "anything", true},
		{"viewer", "mail", false},
		{"operator", "mail", true},
		{"admin", "mail", true},
	} {
		secret, hash := NewToken()
		entry := "app:" + tt.role + ":" + hash
		token, err := ParseToken(entry)
		if err != nil || token.String() != entry {
			t.Fatalf("ParseToken(%s) = %s, %v", entry, token, err)
		}
		g, err := New(Config{Tokens: []Token{token}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := g.Authenticate(t.Context(), "Bearer "+secret, "10.0.0.1:99")
		if err != nil {
			t.Fatal(err)
		}
		err = PermitConsume(p, tt.name)
		if (err == nil) != tt.want || err != nil && errorStatus(err) != http.StatusForbidden {
			t.Errorf("%s consumes %s: %v, want permitted %v", tt.role, tt.name, err, tt.want)
		}
		if err != nil && !strings.Contains(err.Error(), tt.role) {
			t.Errorf("the error %q does not name the role %s", err, tt.role)
		}
	}
}

// A consumer has no rights in the APIs of orders, messages and operators.
func TestConsumer_HasNoOtherRole(t *testing.T) {
	t.Parallel()
	p := Principal{Name: "app", Role: Consumer, Names: "*"}
	for _, needed := range append(Roles, Consumer, "") {
		if err := Permit(p, needed); errorStatus(err) != http.StatusForbidden {
			t.Errorf("Permit(consumer, %q) = %v, want 403", needed, err)
		}
	}
	for _, r := range Roles {
		if r.May(Consumer) {
			t.Errorf("%s includes consumer by order", r)
		}
	}
}

func TestConsumer_InvalidNamesAreRefused(t *testing.T) {
	t.Parallel()
	_, hash := NewToken()
	for _, role := range []Role{"consumer()", "consumer(a", "consumer(a|)", "consumer(a,b)", "consumer([a)", "consumer(a)x", "Consumer(a)", "consumer(a b)"} {
		if _, err := New(Config{Tokens: []Token{{Name: "app", Role: role, Hash: hash}}}); err == nil || !strings.Contains(err.Error(), "consumer(NAMES)") {
			t.Errorf("New() with the role %q = %v, want an error that shows the form", role, err)
		}
	}
}

// A producer sends to its topics, and has no other right.
func TestProducer_SendsToItsTopicsOnly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		role, topic      string
		mayPost, mayThis bool
	}{
		{"producer(reminders|billing.*)", "reminders", true, true},
		{"producer(reminders|billing.*)", "billing.events", true, true},
		{"producer(reminders|billing.*)", "reminders2", true, false},
		{"producer", "anything", true, true},
		{"consumer(reminders)", "reminders", false, true},
		{"viewer", "reminders", false, true},
		{"operator", "reminders", true, true},
		{"admin", "reminders", true, true},
	} {
		secret, hash := NewToken()
		g, err := New(Config{Tokens: []Token{{Name: "app", Role: Role(tt.role), Hash: hash}}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := g.Authenticate(t.Context(), "Bearer "+secret, "10.0.0.1:99")
		if err != nil {
			t.Fatal(err)
		}
		if err := Permit(p, Producer); (err == nil) != tt.mayPost {
			t.Errorf("%s sends: %v, want permitted %v", tt.role, err, tt.mayPost)
		}
		if err := PermitTopic(p, tt.topic); (err == nil) != tt.mayThis {
			t.Errorf("%s sends to %s: %v, want permitted %v", tt.role, tt.topic, err, tt.mayThis)
		}
		if p.Role != Producer {
			continue
		}
		for _, needed := range append(Roles, Consumer, "") {
			if err := Permit(p, needed); errorStatus(err) != http.StatusForbidden {
				t.Errorf("Permit(%s, %q) = %v, want 403", tt.role, needed, err)
			}
		}
		if PermitConsume(p, tt.topic) == nil || PermitRead(p, tt.topic) == nil {
			t.Errorf("%s consumes or reads the subscription %s", tt.role, tt.topic)
		}
	}
	_, hash := NewToken()
	for _, role := range []Role{"producer()", "producer(a", "producer(a b)", "producer(é)"} {
		if _, err := New(Config{Tokens: []Token{{Name: "app", Role: role, Hash: hash}}}); err == nil || !strings.Contains(err.Error(), "producer(TOPICS)") {
			t.Errorf("New() with the role %q = %v", role, err)
		}
	}
}
