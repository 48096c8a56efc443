package main

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// The admin API has what an operator does with orders and messages, with its own
// tokens and audit; and nothing that makes one.
func TestAdmin_OrdersAndMessages(t *testing.T) {
	t.Parallel()
	b := setupDLQ(t)
	secret, file := token(t, "operator")
	viewer, viewerFile := token(t, "viewer")
	yaml, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(viewerFile)
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(strings.Replace(string(other), "ann", "vic", 1), "tokens:\n")
	c, err := parseConfig(t, string(yaml)+line, nil, "--scylla-hosts", b.e.CQLAddr, "--kafka-seeds", b.e.KafkaAddr, "--admin-addr", "127.0.0.1:0", "--messages-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	reg := app.NewRegistry("")
	c.OrdersAddr, c.Messages.Topics = "127.0.0.1:0", []string{"reminders", "late"}
	// As outbox-dev run has them: one registry, one set of services.
	services, err := app.NewServices(t.Context(), c, b.session, app.Parts{Messages: true, Orders: true}, reg, log)
	if err != nil {
		t.Fatal(err)
	}
	orders, err := app.StartOrders(t.Context(), c, b.session, services, reg, log, c.ListenOrders)
	if err != nil {
		t.Fatal(err)
	}
	intake, err := app.StartMessages(t.Context(), c, b.session, services, reg, log, c.ListenMessages)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(intake.Shutdown(), orders.Shutdown(), services.Close()); err != nil {
			t.Error(err)
		}
	}()
	gate, err := c.AdminGate(log)
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.StartAdmin(t.Context(), c, gate, b.session, services, reg, log, c.ListenAdmin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Shutdown(); err != nil {
			t.Error(err)
		}
	}()
	ask := func(token, method, url, body string, header ...string) (int, http.Header, map[string]any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(httpapi.ReasonHeader, "a%20test")
		for i := 0; i+1 < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		var v map[string]any
		if len(raw) > 0 && json.Unmarshal(raw, &v) != nil {
			t.Fatalf("%s %s = %d %s", method, url, resp.StatusCode, raw)
		}
		return resp.StatusCode, resp.Header, v
	}
	_, _, order := ask("", "POST", orders.Addr+"/v1/orders", `{"customer_id":"17850","country":"Finland","currency":"EUR","lines":[{"sku":"71053","quantity":2,"unit_price":"3.39"}]}`)
	_, _, message := ask("", "POST", intake.Addr+"/v1/messages", `{"topic":"reminders","key":"customer-42","payload":1,"delay":"1h"}`)
	one, two := a.Addr+"/v1/orders/"+order["id"].(string), a.Addr+"/v1/messages/"+message["id"].(string)

	if code, _, list := ask(viewer, "GET", a.Addr+"/v1/orders?customer_id=17850", ""); code != 200 || len(list["orders"].([]any)) != 1 {
		t.Errorf("list of orders = %d %v", code, list)
	}
	if code, _, list := ask(viewer, "GET", a.Addr+"/v1/messages?state=scheduled&key=customer-42", ""); code != 200 || len(list["messages"].([]any)) != 1 {
		t.Errorf("list of messages = %d %v", code, list)
	}
	for _, change := range [][2]string{{"POST", one + "/confirm"}, {"POST", one + "/cancel"}, {"DELETE", two}, {"POST", two + "/deliver-now"}} {
		if code, _, _ := ask(viewer, change[0], change[1], ""); code != 403 {
			t.Errorf("%s %s by a viewer = %d", change[0], change[1], code)
		}
	}
	if code, h, p := ask(viewer, "GET", one+"/preview?change=confirm", ""); code != 200 || p["allowed"] != true || h.Get("ETag") != `"1"` {
		t.Errorf("preview = %d %v", code, p)
	}
	if code, _, o := ask(secret, "POST", one+"/confirm", "", "If-Match", `"1"`, httpapi.ReasonHeader, "asked%20by%20phone"); code != 200 || o["status"] != "confirmed" {
		t.Errorf("confirm = %d %v", code, o)
	}
	if code, _, p := ask(secret, "POST", one+"/confirm", ""); code != 409 || p["detail"] != "The order is already confirmed." || p["current_status"] != "confirmed" {
		t.Errorf("confirm again = %d %v", code, p)
	}
	if code, _, c := ask(viewer, "GET", two+"/content", ""); code != 200 || c["payload_text"] != "1" {
		t.Errorf("content = %d %v", code, c)
	}
	if code, _, m := ask(secret, "POST", two+"/deliver-now", "", httpapi.ReasonHeader, "the%20customer%20waits"); code != 200 || m["state"] != "scheduled" || m["deliver_at"] == message["deliver_at"] {
		t.Errorf("deliver-now = %d %v", code, m)
	}
	if code, _, _ := ask(secret, "DELETE", two, ""); code != 204 {
		t.Errorf("take back = %d", code)
	}
	if code, _, p := ask(secret, "POST", two+"/deliver-now", ""); code != 409 || p["state"] != "cancelled" {
		t.Errorf("deliver-now of a cancelled message = %d %v", code, p)
	}
	_, _, audit := ask(viewer, "GET", a.Addr+"/v1/audit", "")
	var got []string
	for _, l := range audit["entries"].([]any) {
		m := l.(map[string]any)
		got = append(got, m["action"].(string)+" "+m["state"].(string))
		if m["action"] == "confirm-order" && m["state"] == "done" && (m["reason"] != "asked by phone" || m["target"] != order["id"] || m["actor"] != "ann") {
			t.Errorf("audit %v", m)
		}
	}
	if want := "deliver-message-now refused,cancel-message done,deliver-message-now done,confirm-order refused,confirm-order done"; strings.Join(got, ",") != want {
		t.Errorf("the audit has %s, want %s", strings.Join(got, ","), want)
	}
	// Bulk changes: the audit contains a change, and not a dry run.
	for range 3 {
		ask("", "POST", intake.Addr+"/v1/messages", `{"topic":"late","payload":"hunter2","delay":"1h"}`)
	}
	many := a.Addr + "/v1/messages/deliver-now"
	const body = `{"filter":{"topic":"late"},"dry_run":false}`
	if code, _, _ := ask(viewer, "POST", many, body); code != 403 {
		t.Errorf("deliver-now of many by a viewer = %d", code)
	}
	// Text that is not UTF-8 is refused as invalid input, not as a failure of the audit.
	if code, _, p := ask(secret, "POST", many, "\xb4]4\xff"); code != 400 {
		t.Errorf("a body that is no JSON = %d %v", code, p)
	}
	if code, _, p := ask(secret, "POST", a.Addr+"/v1/messages/%FF/deliver-now", ""); code != 422 {
		t.Errorf("an id that is no text = %d %v", code, p)
	}
	if code, _, p := ask(secret, "POST", many, strings.Replace(body, "false", "true", 1)); code != 200 || p["preview"].(map[string]any)["messages"] != 3.0 || p["result"] != nil {
		t.Errorf("dry run of many = %d %v", code, p)
	}
	if code, _, p := ask(secret, "POST", many, body, httpapi.ReasonHeader, "INC-7"); code != 200 || p["result"].(map[string]any)["changed"] != 3.0 || p["next"] != nil {
		t.Errorf("deliver-now of many = %d %v", code, p)
	}
	if code, _, p := ask(secret, "POST", a.Addr+"/v1/messages/cancel", `{"filter":{}}`); code != 422 {
		t.Errorf("cancel of whatever = %d %v", code, p)
	}
	if code, _, p := ask(secret, "POST", many, `{"filter":{"topic":"`+strings.Repeat("x", 9000)+`"}}`); code != 413 {
		t.Errorf("a body that the audit has no room for = %d %v", code, p)
	}
	if code, _, p := ask("", "POST", intake.Addr+"/v1/messages/deliver-now", body); code < 400 {
		t.Errorf("the callers' API delivered many: %d %v", code, p)
	}
	_, _, audit = ask(viewer, "GET", a.Addr+"/v1/audit", "")
	lines := audit["entries"].([]any)
	refused, done := lines[0].(map[string]any), lines[1].(map[string]any)
	if len(lines) != len(got)+4 || refused["action"] != "cancel-messages" || refused["state"] != "refused" || done["action"] != "deliver-messages-now" || done["state"] != "done" ||
		done["reason"] != "INC-7" || done["detail"] != body || done["outcome"] != `{"changed":3,"gone":0}` {
		t.Errorf("the audit has %v and %v", done, refused)
	}
	for _, path := range []string{"/v1/orders", "/v1/messages"} {
		if code, _, _ := ask(secret, "POST", a.Addr+path, "{}"); code != 405 {
			t.Errorf("POST %s = %d: the admin API makes nothing", path, code)
		}
	}
	_, _, doc := ask("", "GET", a.Addr+"/openapi.json", "")
	paths := doc["paths"].(map[string]any)
	for _, path := range []string{"/v1/orders/{id}/ship", "/v1/messages/{id}", "/v1/dead-letters"} {
		if paths[path] == nil {
			t.Errorf("the description has no %s", path)
		}
	}
}
