package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

// Version is set by the linker.
var Version = "dev"

// Build describes the running binary.
type Build struct {
	Version string `json:"version"`
	// Revision and Time belong to the commit; they are empty for a build outside a checkout.
	// Modified reports uncommitted changes.
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// ThisBuild returns the build of this process.
func ThisBuild() Build {
	b := Build{Version: Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// BuildInfo returns the metric outbox_build_info of a process that runs the command, which is 1.
func BuildInfo(command string) prometheus.Collector {
	b := ThisBuild()
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "outbox_build_info", Help: "The command and the build of the process, in labels; 1.",
		ConstLabels: prometheus.Labels{"command": command, "version": b.Version, "revision": b.Revision, "go": b.Go},
	})
	g.Set(1)
	return g
}

// NewVersionCommand returns the command that prints the build.
func NewVersionCommand() *cobra.Command {
	output := ""
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := ThisBuild()
			return Show(cmd.OutOrStdout(), output, b, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, b.Version)
				return err
			})
		},
	}
	OutputFlag(cmd, &output)
	return cmd
}
