package report_test

import (
	"strings"
	"testing"

	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/outbox"
	"workflowagent/internal/workflow"
)

// A comment shows violations, and an advisory one never makes a status fail.
func TestPolicyViolations(t *testing.T) {
	each(t, func(f *fixture) {
		d := f.deploy("dev", first, workflow.OperationPreview, "pull-request")
		f.write(func(tx *store.Tx) error {
			run := store.PolicyRun{
				UpdateID: "u" + d, Pack: "aws", PackID: "p", Ran: true, Advisory: 1, Levels: []store.PolicyLevel{{Name: "size", Level: "advisory"}, {Name: "whole-stack", Level: "mandatory"}},
				Counts: []store.PolicyCount{{Policy: "size", Failed: 1}},
			}
			if err := tx.SavePolicyRun(run); err != nil {
				return err
			}
			return tx.InsertPolicyViolation(store.PolicyViolation{
				UpdateID: "u" + d, Pack: "aws", Policy: "size", Level: "advisory", URN: "urn:pulumi:dev::web::a:b:C::thing", Message: "<img src=x> " + secret,
			})
		})
		f.decide(outbox.Decision{})
		f.run()
		f.finish(d, workflow.StatusSucceeded, "")
		const line = "advisory: aws size: a:b:C thing: <img src=x> [secret]\n"
		f.await("the violation", func() bool {
			return strings.Contains(f.forge.comments[7], "Policy violations\n\n```\n"+line) && f.state(first, outbox.Aggregate) == vcs.ReportSucceeded
		})
		f.quiet()
		f.forge.mu.Lock()
		defer f.forge.mu.Unlock()
		if r := f.forge.reports[first+" "+preview]; r.State != vcs.ReportSucceeded || r.Summary != "✅ succeeded: +1: 1 advisory violation" || !strings.Contains(r.Details, line) {
			f.t.Errorf("status: %+v", r)
		}
		if text := f.forge.comments[7]; !strings.Contains(text, "aws whole-stack") || strings.Contains(text, secret) {
			f.t.Errorf("the comment does not name the policy without a result, or contains a secret:\n%s", text)
		}
	})
}
