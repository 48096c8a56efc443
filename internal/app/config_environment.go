package app

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"
)

// ofService are the ends of variables by which Kubernetes tells a container of a service:
// one called outbox-relay makes OUTBOX_RELAY_PORT and more, which nobody wrote for us.
// https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables
var ofService = regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// Strangers are the names of variables in environ, as of os.Environ, that begin as those
// of settings do and are of none.
func Strangers(environ []string) []string {
	var names []string
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, envPrefix) && !ofService.MatchString(name) &&
			!slices.ContainsFunc(Settings, func(s setting) bool { return s.Env() == name }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// warnOfStrangers logs them: a misspelt one leaves a default in force without a word. It
// is no error, since others may use such names.
func warnOfStrangers(log *slog.Logger, environ []string) {
	for _, name := range Strangers(environ) {
		log.Warn("environment variable belongs to no setting: it changes nothing", "name", name,
			"hint", "is it misspelt? --help names the variable of each setting")
	}
}
