package api

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// The Go client, and with it `outbox subscriptions apply -f`, has each member of a subscription:
// one that it lacks could not be set, and a copy that is sent back would reset it.
func TestClient_HasEachMember(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ server, client any }{
		{subscriptionInput{}, client.Subscription{}},
		{subscriptionBody{}, client.Subscription{}},
		{statusBody{}, client.Status{}},
		{subscriptions.Lease{}, client.Lease{}},
	} {
		sameMembers(t, reflect.TypeOf(x.server), reflect.TypeOf(x.client), reflect.TypeOf(x.client).Name())
	}
}

// sameMembers compares the members of two types, and of those within.
func sameMembers(t *testing.T, server, own reflect.Type, path string) {
	t.Helper()
	want, got := members(server), members(own)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		typ, found := got[name]
		if !found {
			t.Errorf("%s lacks %s", path, name)
			continue
		}
		if inner := element(want[name]); inner.Kind() == reflect.Struct && element(typ).Kind() == reflect.Struct {
			sameMembers(t, inner, element(typ), path+"."+name)
		}
	}
}

// members returns the exported fields of a type by their names in JSON.
func members(typ reflect.Type) map[string]reflect.Type {
	all := make(map[string]reflect.Type)
	for f := range typ.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.IsExported() && name != "" {
			all[name] = f.Type
		}
	}
	return all
}

// element returns the type that pointers and lists refer to.
func element(typ reflect.Type) reflect.Type {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	return typ
}
