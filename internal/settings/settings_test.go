package settings_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/internal/settings"
)

type common struct {
	TLS bool `setting:"tls" usage:"use TLS"`
}

type rule struct {
	Name   string          `setting:"name"`
	Delays []time.Duration `setting:"delays"`
	Most   int             `setting:"most" off:"-1"`
}

type config struct {
	Shop struct {
		Name     string            `setting:"name" default:"corner"`
		Password string            `setting:"password" secret:"true"`
		Wait     time.Duration     `setting:"wait" default:"90s" min:"1s" max:"1h"`
		Keep     time.Duration     `setting:"keep" off:"-1"`
		Rate     float64           `setting:"rate" off:"0"`
		Size     int32             `setting:"size" default:"5" off:"-1"`
		Mode     string            `setting:"mode" default:"fast" oneof:"fast slow"`
		Hosts    []string          `setting:"hosts" default:"a,b"`
		Waits    []time.Duration   `setting:"waits"`
		Topics   map[string]string `setting:"topics"`
		Rules    []rule            `setting:"rules"`
		common
		Inside int
	} `setting:"shop"`
	Other struct {
		Level string `setting:"level" section:"log"`
		URL   string `setting:"url" flag:"other"`
	} `setting:"other"`
}

func load(t *testing.T, yaml string, env map[string]string, args ...string) (*config, error) {
	t.Helper()
	c := new(config)
	c.Shop.Keep = time.Hour
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings.Of(c).AddFlags(flags, "shop", "log")
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	path := ""
	if yaml != "" {
		path = filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c = new(config)
	c.Shop.Keep = time.Hour
	_, err := settings.Of(c).Load(path, func(k string) (string, bool) { v, ok := env[k]; return v, ok }, flags)
	return c, err
}

func TestOf_NamesAndDefaults(t *testing.T) {
	t.Parallel()
	var c config
	c.Shop.Keep = -1
	got := make(map[string]string)
	fields := settings.Of(&c)
	for _, f := range fields {
		got[f.Key] = strings.Join([]string{f.Section, f.Flag(), f.Env(), f.Text()}, " ")
	}
	want := map[string]string{
		"shop.name": "shop shop-name OUTBOX_SHOP_NAME corner", "shop.password": "shop  OUTBOX_SHOP_PASSWORD ",
		"shop.wait": "shop shop-wait OUTBOX_SHOP_WAIT 1m30s", "shop.keep": "shop shop-keep OUTBOX_SHOP_KEEP off",
		"shop.rate": "shop shop-rate OUTBOX_SHOP_RATE off", "shop.size": "shop shop-size OUTBOX_SHOP_SIZE 5",
		"shop.mode": "shop shop-mode OUTBOX_SHOP_MODE fast", "shop.hosts": "shop shop-hosts OUTBOX_SHOP_HOSTS a,b",
		"shop.waits": "shop shop-waits OUTBOX_SHOP_WAITS ", "shop.topics": "shop shop-topics OUTBOX_SHOP_TOPICS ",
		"shop.rules": "shop   ", "shop.tls": "shop shop-tls OUTBOX_SHOP_TLS false", "other.level": "log other-level OUTBOX_OTHER_LEVEL ",
		"other.url": "other other OUTBOX_OTHER_URL ",
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if got[k] != want[k] {
			t.Errorf("%s: %q, want %q", k, got[k], want[k])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d settings, want %d", len(got), len(want))
	}
	if key, ok := fields.Key("shop", "Wait"); !ok || key != "shop.wait" {
		t.Errorf("Key() = %q, %t", key, ok)
	}
}

func TestLoad_FlagOverEnvironmentOverFileOverDefault(t *testing.T) {
	t.Parallel()
	c, err := load(t, `
shop:
  name: file
  wait: 3s
  keep: off
  hosts: one
  waits: [0s, 1s]
  topics: {A: b}
  tls:
  rules:
    - {name: on, delays: [1m], most: off}
`, map[string]string{"OUTBOX_SHOP_WAIT": "4s", "OUTBOX_SHOP_SIZE": "1_000", "OUTBOX_SHOP_PASSWORD": "x", "OUTBOX_SHOP_TLS": "true", "OUTBOX_SHOP_HOSTS": ""},
		"--shop-wait=5s", "--shop-topics=C=d", "--shop-topics=E=f")
	if err != nil {
		t.Fatal(err)
	}
	want := new(config)
	want.Shop.Name, want.Shop.Wait, want.Shop.Keep, want.Shop.Size, want.Shop.Password, want.Shop.Mode = "file", 5*time.Second, -1, 1000, "x", "fast"
	want.Shop.Hosts, want.Shop.Waits, want.Shop.Topics = []string{}, []time.Duration{0, time.Second}, map[string]string{"C": "d", "E": "f"}
	want.Shop.Rules, want.Shop.TLS = []rule{{"on", []time.Duration{time.Minute}, -1}}, true
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

// All problems are in one error, each with the name of its setting.
func TestLoad_EveryProblemIsNamed(t *testing.T) {
	t.Parallel()
	_, err := load(t, `
shop:
  nam: x
  wait: 720
  keep: -1ns
  size: 0
  rate: -2
  mode: slowly
  tls: perhaps
  name: [a]
  waits: [1s, soon]
  topics: [a]
  rules: [{name: a, most: x, dealys: []}, 7]
  hosts: {a: b}
other: 3
sop: {}
`, map[string]string{"OUTBOX_SHOP_RATE": "NaN"}, "--shop-wait=2h")
	for _, want := range []string{
		`line 3: unknown key "shop.nam"; did you mean "shop.name"?`, `shop.wait: missing unit in duration "720"`, "shop.keep: -1ns must be positive, or off",
		"shop.size: 0 must be positive, or off", "shop.rate: -2 must be positive, or off", `shop.mode: "slowly": write fast or slow`, `shop.tls: "perhaps" is not true or false`,
		"shop.name: write one value", `shop.waits[1]: "soon" is not a duration`, `shop.topics: "a": write name=value`, `shop.rules[0].most: "x" is not a whole number, or off`,
		`shop.rules[0]: unknown key "dealys"; there are name, delays, most`, "shop.rules[1]: write keys and values below it", "shop.hosts: write one value",
		"other: write keys and values below it", `unknown key "sop"`, `OUTBOX_SHOP_RATE: shop.rate: "NaN" is not a number`, "--shop-wait: shop.wait: 2h is above the limit of 1h",
	} {
		if err == nil || strings.Count(err.Error(), want) != 1 {
			t.Errorf("error = %v\nwant %q in it once", err, want)
		}
	}
}

func TestLoad_FilesThatAreRefused(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]string{
		"shop: [":                               "c.yaml",
		"shop: {name: a}\nshop: {size: 3}\n":    "shop is listed twice",
		"shop: {name: a, name: b}\n":            "shop.name is listed twice",
		"shop: {name: a}\n---\nshop: {size: 3}": "more than one document",
		"shop":                                  "write sections",
		"a: &a {name: b}\nshop: {<<: *a}\n":     "merge keys are not supported",
	} {
		if _, err := load(t, yaml, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error = %v, want %q", yaml, err, want)
		}
	}
}

func TestOf_RefusesASecondDefault(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a default in the tag and in the field was accepted")
		}
	}()
	var c config
	c.Shop.Name = "mine"
	settings.Of(&c)
}

// The keys of the file that the environment overrides are returned, and no others.
func TestLoad_NamesOverriddenKeys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("shop: {name: file, wait: 2s, hosts: [a]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"OUTBOX_SHOP_NAME": "env", "OUTBOX_SHOP_HOSTS": "b", "OUTBOX_SHOP_SIZE": "7"}
	got, err := settings.Of(new(config)).Load(path, func(k string) (string, bool) { v, ok := env[k]; return v, ok }, pflag.NewFlagSet("", pflag.ContinueOnError))
	if slices.Sort(got); err != nil || !slices.Equal(got, []string{"shop.hosts", "shop.name"}) {
		t.Errorf("Load() = %q, %v, want the keys of the file that the environment has too", got, err)
	}
}
