package settings_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/internal/settings"
)

// A document of the settings is one that the file could be: durations as text, off where it
// is off. Secrets are in it only as such.
func TestFields_Document(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(`
shop:
  password: swordfish
  wait: 5s
  keep: off
  size: off
  hosts: [one, two]
  waits: [0s, 90s]
  topics: {A: b}
  rules:
    - {name: on, delays: [1m], most: off}
    - {most: 3}
other: {level: debug}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	fields := settings.Of(new(config))
	if _, err := fields.Load(file, func(string) (string, bool) { return "", false }, pflag.NewFlagSet("", pflag.ContinueOnError)); err != nil {
		t.Fatal(err)
	}
	got, err := json.MarshalIndent(fields.Document(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "other": {
    "level": "debug",
    "url": ""
  },
  "shop": {
    "hosts": [
      "one",
      "two"
    ],
    "keep": "off",
    "mode": "fast",
    "name": "corner",
    "password": "(redacted)",
    "rate": "off",
    "rules": [
      {
        "delays": [
          "1m"
        ],
        "most": "off",
        "name": "on"
      },
      {
        "most": 3
      }
    ],
    "size": "off",
    "tls": false,
    "topics": {
      "A": "b"
    },
    "wait": "5s",
    "waits": [
      "0s",
      "1m30s"
    ]
  }
}`
	if string(got) != want {
		t.Errorf("the document is\n%s, want\n%s", got, want)
	}
}

func TestField_Redacted(t *testing.T) {
	t.Parallel()
	for password, want := range map[string]string{"": "", "swordfish": "(redacted)"} {
		c := new(config)
		fields := settings.Of(c)
		c.Shop.Password = password
		for _, f := range fields {
			switch f.Key {
			case "shop.password":
				if got := f.RedactedText(); got != want {
					t.Errorf("the password %q is shown as %q, want %q", password, got, want)
				}
			case "shop.name":
				if got := f.RedactedText(); got != "corner" {
					t.Errorf("the name is shown as %q", got)
				}
			}
		}
	}
}

// A variable with the prefix of settings that is none is probably misspelt, unless it is one
// that Kubernetes sets for a service.
func TestFields_Strangers(t *testing.T) {
	t.Parallel()
	got := settings.Of(new(config)).Strangers([]string{
		"PATH=/bin", "SHOP_NAME=x", "OUTBOX_SHOP_NAME=x", "OUTBOX_SHOP_NAME2=x", "OUTBOX_SHOP=", "OUTBOX_NOTHING",
		"OUTBOX_RELAY_SERVICE_HOST=10.0.0.1", "OUTBOX_RELAY_SERVICE_PORT=80", "OUTBOX_RELAY_SERVICE_PORT_HTTP=80", "OUTBOX_RELAY_PORT=tcp://10.0.0.1:80",
		"OUTBOX_RELAY_PORT_80_TCP=tcp://10.0.0.1:80", "OUTBOX_RELAY_PORT_80_TCP_PROTO=tcp", "OUTBOX_RELAY_PORT_80_UDP_PORT=80", "OUTBOX_RELAY_PORT_80_SCTP_ADDR=10.0.0.1",
		"OUTBOX_RELAY_PORT_X_TCP=", "OUTBOX_RELAY_PORTS=", "OUTBOX_SHOP_RULES=[]",
	})
	want := []string{"OUTBOX_NOTHING", "OUTBOX_RELAY_PORTS", "OUTBOX_RELAY_PORT_X_TCP", "OUTBOX_SHOP", "OUTBOX_SHOP_NAME2", "OUTBOX_SHOP_RULES"}
	if !slices.Equal(got, want) {
		t.Errorf("Strangers() = %v, want %v", got, want)
	}
}

// --help shows the type and the default of a setting, and the name of its variable.
func TestFields_AddFlags(t *testing.T) {
	t.Parallel()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings.Of(new(config)).AddFlags(flags, "shop")
	for name, want := range map[string][2]string{ // type and default
		"shop-name": {"string", "corner"}, "shop-wait": {"duration", "1m30s"}, "shop-size": {"int", "5"}, "shop-rate": {"float", "off"},
		"shop-tls": {"bool", "false"}, "shop-hosts": {"stringSlice", "[a,b]"}, "shop-waits": {"stringSlice", "[]"},
	} {
		f := flags.Lookup(name)
		if f == nil || f.Value.Type() != want[0] || f.DefValue != want[1] {
			t.Errorf("--%s is %+v, want the type %s and the default %s", name, f, want[0], want[1])
		}
	}
	if f := flags.Lookup("shop-tls"); f.Usage != "use TLS [OUTBOX_SHOP_TLS]" {
		t.Errorf("the usage of --shop-tls is %q", f.Usage)
	}
	for _, none := range []string{"shop-password", "shop-rules", "other-level", "other"} { // a secret, a list of structs, another section
		if flags.Lookup(none) != nil {
			t.Errorf("there is a flag --%s", none)
		}
	}
}

func TestSetDefaultsAndCheck(t *testing.T) {
	t.Parallel()
	type common struct {
		Level string `default:"info" oneof:"info debug"`
	}
	type config struct {
		Wait  time.Duration   `setting:"wait" default:"1s" min:"10ms" max:"1m"`
		Waits []time.Duration `default:"0s,1s" min:"0s"`
		Rows  int             `default:"off" off:"-1" max:"10"`
		Kept  string          `default:"other"`
		Plain int
		own   int `default:"1"`
		common
	}
	c := config{Kept: "kept"}
	settings.SetDefaults(&c)
	if want := (config{time.Second, []time.Duration{0, time.Second}, -1, "kept", 0, 0, common{"info"}}); !reflect.DeepEqual(c, want) {
		t.Errorf("SetDefaults() = %+v, want %+v", c, want)
	}
	wrong := func() (fields []string) {
		settings.Check(&c, func(field string, err error) { fields = append(fields, field) })
		return fields
	}
	if got := wrong(); got != nil {
		t.Errorf("Check() of the defaults reports %q", got)
	}
	c = config{time.Hour, []time.Duration{0, -1}, -2, "", 0, 0, common{"none"}}
	if got, want := wrong(), []string{"Wait", "Waits", "Rows", "Level"}; !reflect.DeepEqual(got, want) {
		t.Errorf("Check() reports %q, want %q", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("a default that is no number is used")
		}
	}()
	settings.SetDefaults(&struct {
		Rows int `default:"many"`
	}{})
}
