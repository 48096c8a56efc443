package access

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

// clock is a clock that tests advance.
type clock struct{ at time.Time }

func (c *clock) Now() time.Time { return c.at }

// setup returns a gate with a token of each role, and the tokens.
func setup(t *testing.T, change func(*Config)) (g *Gate, secrets map[Role]string, log *bytes.Buffer) {
	t.Helper()
	log = new(bytes.Buffer)
	c := Config{Logger: slog.New(slog.NewTextHandler(log, nil))}
	secrets = make(map[Role]string)
	for _, r := range Roles {
		secret, hash := NewToken()
		secrets[r] = secret
		c.Tokens = append(c.Tokens, Token{Name: "a-" + string(r), Role: r, Hash: hash})
	}
	if change != nil {
		change(&c)
	}
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return g, secrets, log
}

func errorStatus(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return http.StatusOK
}

func TestGate_LetsInByToken(t *testing.T) {
	t.Parallel()
	g, secrets, log := setup(t, nil)
	for role, secret := range secrets {
		p, err := g.Authenticate(t.Context(), "Bearer "+secret, "10.0.0.1:99")
		if err != nil || p.Role != role || p.Name != "a-"+string(role) {
			t.Errorf("Authenticate(%s) = %+v, %v", role, p, err)
		}
	}
	other, _ := NewToken()
	admin := secrets[Admin]
	for name, header := range map[string]string{
		"no header": "", "no token": "Bearer", "blank token": "Bearer   ", "other scheme": "Basic " + admin, "a stranger's": "Bearer " + other,
		"cut off": "Bearer " + admin[:len(admin)-1], "with more": "Bearer " + admin + "x", "other case": "Bearer " + strings.ToUpper(admin),
		"the hash": "Bearer " + hashPrefix + strings.Repeat("0", 64), "endless": "Bearer " + strings.Repeat("x", maxToken+1),
	} {
		p, err := g.Authenticate(t.Context(), header, "10.0.0.2:99")
		if errorStatus(err) != http.StatusUnauthorized || p != (Principal{}) {
			t.Errorf("%s: Authenticate() = %+v, %v, want 401", name, p, err)
		}
	}
	if text := log.String(); !strings.Contains(text, "10.0.0.2") || strings.Contains(text, other) || strings.Contains(text, admin[4:20]) {
		t.Errorf("the log must name the address and no token:\n%s", text)
	}
	if _, err := g.Authenticate(t.Context(), "bearer "+admin, "10.0.0.1:99"); err != nil {
		t.Errorf("the scheme has no case: %v", err)
	}
}

func TestGate_WrongTokensAreCountedByAddress(t *testing.T) {
	t.Parallel()
	c := &clock{time.Unix(1_700_000_000, 0)}
	g, secrets, log := setup(t, func(conf *Config) { conf.Clock, conf.FailuresPerMinute = c, 3 })
	try := func(remote string) error {
		_, err := g.Authenticate(t.Context(), "Bearer wrong", remote)
		return err
	}
	for i := range 3 {
		if err := try("10.0.0.1:1"); errorStatus(err) != http.StatusUnauthorized {
			t.Fatalf("attempt %d: %v, want 401", i+1, err)
		}
	}
	before := log.Len()
	err := try("10.0.0.1:2")
	var e *Error
	if !errors.As(err, &e) || e.Status != http.StatusTooManyRequests || e.RetryAfter <= 0 || e.RetryAfter > 20*time.Second {
		t.Fatalf("attempt 4: %+v, want 429 with a wait of up to 20 s", e)
	}
	if log.Len() != before {
		t.Error("attempts beyond the limit are logged, so anybody could fill the log")
	}
	if err := try("10.0.0.2:1"); errorStatus(err) != http.StatusUnauthorized {
		t.Errorf("from elsewhere: %v, want 401", err)
	}
	if _, err := g.Authenticate(t.Context(), "Bearer "+secrets[Viewer], "10.0.0.1:3"); err != nil {
		t.Errorf("a right token from the same address: %v, want it to be let in", err)
	}
	c.at = c.at.Add(20 * time.Second)
	if err := try("10.0.0.1:4"); errorStatus(err) != http.StatusUnauthorized {
		t.Errorf("after the wait: %v, want 401", err)
	}
	for i, six := range []string{"[2001:db8:1:2::1]:1", "[2001:db8:1:2::ffff]:1", "[2001:db8:1:2:3::]:1", "[2001:db8:1:2:4::9]:1"} {
		if want := map[bool]int{true: 401, false: 429}[i < 3]; errorStatus(try(six)) != want {
			t.Errorf("attempt %d from one IPv6 network: want %d", i+1, want)
		}
	}
}

func TestGate_RequestsAreCountedByToken(t *testing.T) {
	t.Parallel()
	c := &clock{time.Unix(1_700_000_000, 0)}
	g, secrets, _ := setup(t, func(conf *Config) { conf.Clock, conf.RequestsPerSecond, conf.RequestsBurst = c, 2, 3 })
	ask := func(r Role) int {
		_, err := g.Authenticate(t.Context(), "Bearer "+secrets[r], "10.0.0.1:1")
		return errorStatus(err)
	}
	for i := range 3 {
		if got := ask(Viewer); got != 200 {
			t.Fatalf("request %d: %d", i+1, got)
		}
	}
	if got := ask(Viewer); got != http.StatusTooManyRequests {
		t.Errorf("request 4: %d, want 429", got)
	}
	if got := ask(Admin); got != 200 {
		t.Errorf("another's: %d, want 200", got)
	}
	c.at = c.at.Add(500 * time.Millisecond)
	if got := ask(Viewer); got != 200 {
		t.Errorf("half a second later: %d, want 200", got)
	}
}

func TestLimits_AreBounded(t *testing.T) {
	t.Parallel()
	c := &clock{time.Unix(1_700_000_000, 0)}
	l := newLimits(1, 1, c)
	for i := range maxLimits + 100 {
		l.take(strings.Repeat("x", 1+i%7) + time.Duration(i).String())
	}
	if len(l.by) > maxLimits {
		t.Errorf("%d limiters, want at most %d", len(l.by), maxLimits)
	}
	c.at = c.at.Add(time.Minute)
	l.take("one more")
	if len(l.by) > 1 {
		t.Errorf("%d limiters after all were full again, want 1", len(l.by))
	}
}

func TestRole_May(t *testing.T) {
	t.Parallel()
	for i, have := range Roles {
		for j, need := range Roles {
			if have.May(need) != (i >= j) {
				t.Errorf("%s.May(%s) = %v", have, need, have.May(need))
			}
		}
	}
	if Role("").May(Viewer) || Admin.May("") || Role("root").May(Viewer) || Admin.May("root") || Role("").May("") {
		t.Error("a role that does not exist may something, or may be had")
	}
}

func TestNew_NamesEveryProblem(t *testing.T) {
	t.Parallel()
	secret, hash := NewToken()
	_, err := New(Config{
		FailuresPerMinute: -1,
		Tokens: []Token{
			{Name: "ok", Role: Viewer, Hash: hash},
			{Name: "ok", Role: Viewer, Hash: hash},
			{Name: "a b", Role: "root", Hash: "md5:1"},
			{Name: "oops", Role: Admin, Hash: secret},
		},
		OIDC: OIDC{Issuer: "http://id.example.com"},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"failures", `token 2 ("ok"): name: used twice`, `also used by "ok"`, `token 3 ("a b"): name`, `role "root"`, `"sha256:"`, "the token itself", "use https", "audience"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not say %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), secret) {
		t.Error("the error shows a token")
	}
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "configure tokens") {
		t.Errorf("New() without tokens = %v", err)
	}
}

// A handler that only its own process calls knows the principal without a token.
func TestOnly_EveryRequestIsOfThePrincipal(t *testing.T) {
	t.Parallel()
	want := Principal{Name: `DOMAIN\ann`, Role: Operator}
	g := Only(want)
	for _, header := range []string{"", "Bearer x"} {
		if p, err := g.Authenticate(t.Context(), header, ""); err != nil || p != want {
			t.Errorf("Authenticate(%q) = %+v, %v, want %+v", header, p, err, want)
		}
	}
}
