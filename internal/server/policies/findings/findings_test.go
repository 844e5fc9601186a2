package findings

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const urn = "urn:pulumi:dev::p::t:t:T::r"

func TestOf(t *testing.T) {
	for name, tt := range map[string]struct {
		event string
		want  *Finding
	}{
		"a violation in an update has color marks and a newline": {
			`{"sequence":4,"policyEvent":{"resourceUrn":"` + urn + `","message":"<{%fg 3%}>not <b>allowed</b>\u001b[2J<{%reset%}>\n","color":"raw",` +
				`"policyName":"no-r","policyPackName":"pack","policyPackVersion":"1.0.0","policyPackVersionTag":"1.0.1","enforcementLevel":"mandatory","severity":"high"}}`,
			&Finding{Violation: &Violation{Pack: "pack", Tag: "1.0.1", Policy: "no-r", Level: Mandatory, Severity: "high", URN: urn, Message: "not <b>allowed</b>"}},
		},
		"an advisory violation with exceptions": {
			`{"policyEvent":{"message":"m","policyName":"a","policyPackName":"p","enforcementLevel":"advisory","severity":"odd","exceptions":[{"id":"EXC-1","reason":"r"},{"id":"EXC-\n2"}]}}`,
			&Finding{Violation: &Violation{Pack: "p", Policy: "a", Level: Advisory, Message: "m", Exceptions: []string{"EXC-1", "EXC- 2"}}},
		},
		"an unknown level counts as mandatory": {
			`{"policyEvent":{"message":"m","policyName":"a","policyPackName":"p","enforcementLevel":"none"}}`,
			&Finding{Violation: &Violation{Pack: "p", Policy: "a", Level: Mandatory, Message: "m"}},
		},
		"a summary of a resource": {
			`{"policyAnalyzeSummaryEvent":{"resourceUrn":"` + urn + `","policyPackName":"p","policyPackVersion":"2","passed":["a"],"failed":["b",""]}}`,
			&Finding{Summary: &Summary{Pack: "p", Tag: "2", URN: urn, Passed: []string{"a"}, Failed: []string{"b"}}},
		},
		"a summary of a stack": {
			`{"policyAnalyzeStackSummaryEvent":{"resourceUrn":"` + urn + `","policyPackName":"p","passed":["a"]}}`,
			&Finding{Summary: &Summary{Pack: "p", Passed: []string{"a"}, Failed: []string{}}},
		},
		"the packs of an update":      {`{"summaryEvent":{"maybeCorrupt":false,"PolicyPacks":{"a\u0062":"1","c":"2"}}}`, &Finding{Ran: []string{"ab", "c"}}},
		"an update without packs":     {`{"summaryEvent":{"PolicyPacks":{}}}`, &Finding{Ran: []string{}}},
		"a deleted resource":          {`{"resOutputsEvent":{"metadata":{"op":"delete","urn":"` + urn + `"}}}`, &Finding{Gone: urn}},
		"a replaced resource remains": {`{"resOutputsEvent":{"metadata":{"op":"delete-replaced","urn":"` + urn + `"}}}`, nil},
		"a remediation":               {`{"policyRemediationEvent":{"policyName":"a","policyPackName":"p"}}`, nil},
		"a violation without a pack":  {`{"policyEvent":{"message":"m","policyName":"a"}}`, nil},
		"a summary without a URN":     {`{"policyAnalyzeSummaryEvent":{"policyPackName":"p"}}`, nil},
		"wrong types":                 {`{"policyEvent":{"message":7}}`, nil},
		"no object":                   {`[]`, nil},
	} {
		got, ok := Of(7, []byte(tt.event))
		if ok != (tt.want != nil) {
			t.Errorf("%s: says something: %v, %+v", name, ok, got)
			continue
		}
		if ok {
			tt.want.Sequence = 7
			if diff := cmp.Diff(*tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
}

func TestTextsAreBounded(t *testing.T) {
	long := strings.Repeat("ü", 10_000)
	f, ok := Of(1, []byte(`{"policyEvent":{"resourceUrn":"`+long+`","message":"`+long+`","policyName":"`+long+`","policyPackName":"`+long+`"}}`))
	if v := f.Violation; !ok || len(v.URN) > maxURN || len(v.Message) > maxMessage || len(v.Policy) > maxName || len(v.Pack) > maxName {
		t.Errorf("a violation with long texts: %v, %+v", ok, f.Violation)
	}
}
