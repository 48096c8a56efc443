package queue

import "strings"

// detailsMark is between the reason and the details of a failure; WithDetails removes it from both.
const detailsMark = "\x1e"

// WithDetails returns the text of a failure with details, such as a stack. The queue keeps the
// details of a message that is given up, until its dead letter is written.
func WithDetails(reason, details string) string {
	reason, details = strings.ReplaceAll(reason, detailsMark, ""), strings.ReplaceAll(details, detailsMark, "")
	if details == "" {
		return reason
	}
	return reason + detailsMark + details
}

// CutDetails returns the reason and the details of a failure.
func CutDetails(text string) (reason, details string) {
	reason, details, _ = strings.Cut(text, detailsMark)
	return reason, details
}
