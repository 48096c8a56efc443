package httpapi

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// ReasonHeader is the header with the reason of a change, for the audit trail. It is
// percent-encoded, because a header carries ASCII alone.
const ReasonHeader = "Audit-Reason"

// reasonForm is the form of a reason: it has a visible character.
const reasonForm = `^(%[0-9A-Fa-f]{2}|[ -$&-~])*([!-$&-~]|%2[1-9A-Fa-f]|%[3-9A-Fa-f][0-9A-Fa-f])(%[0-9A-Fa-f]{2}|[ -$&-~])*$`

var ofReasonForm = regexp.MustCompile(reasonForm)

// maxReason is the maximum length of a reason as it is sent.
const maxReason = 8000

// DescribeReason adds the header to the description of a change, unless it has it. required
// reports that the change is refused without one; a dry run needs none.
func DescribeReason(op *huma.Operation, required bool) {
	if slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.Name == ReasonHeader }) {
		return
	}
	longest := maxReason
	op.Parameters = append(op.Parameters, &huma.Param{
		Name: ReasonHeader, In: "header", Required: required,
		Description: "Reason of the change for the audit trail, as percent-encoded UTF-8. A dry run needs none",
		Schema:      &huma.Schema{Type: huma.TypeString, Pattern: reasonForm, MaxLength: &longest}, Example: "INC-311%20asked%20by%20the%20customer",
	})
}

// Reason returns the reason of a request; it is empty without the header. huma does not validate
// the header, because it is in no input.
func Reason(ctx huma.Context) (string, *huma.ErrorDetail) {
	var sent []string
	ctx.EachHeader(func(name, value string) {
		if http.CanonicalHeaderKey(name) == ReasonHeader {
			sent = append(sent, value)
		}
	})
	if len(sent) == 0 {
		return "", nil
	}
	text, err := url.PathUnescape(sent[0])
	if err != nil || len(sent) > 1 || len(sent[0]) > maxReason || !ofReasonForm.MatchString(sent[0]) {
		return "", &huma.ErrorDetail{Location: "header." + ReasonHeader, Message: "must be one text of at most 8,000 characters, percent-encoded, that is not blank"}
	}
	return strings.ToValidUTF8(text, "\uFFFD"), nil
}
