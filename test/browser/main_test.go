//go:build browser

package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/chromedp/chromedp"
)

// chromium is one browser for all tests; each test has its own context in it,
// like a private window.
var chromium context.Context

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	found := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			found = path
			break
		}
	}
	if found == "" {
		fmt.Fprintln(os.Stderr, "missing: chromium. Install it (on Debian: sudo apt-get install chromium), or run 'make test-short', which needs Go alone.")
		return 1
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(found), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.WSURLReadTimeout(patience)) // a first start on a busy machine
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // its sandbox does not run as root
	}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	defer stop()
	ctx, end := chromedp.NewContext(alloc)
	defer end()
	if err := chromedp.Do(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s does not start: %v\n", found, err)
		return 1
	}
	chromium = ctx
	return m.Run()
}
