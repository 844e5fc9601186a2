package protocol_test

import (
	"net/http"
	"testing"
	"time"
	"unicode"

	"workflowagent/internal/protocol"
)

// FuzzPoll checks that an accepted job has a printable ID and a token, and that every pause is
// bounded.
func FuzzPoll(f *testing.F) {
	f.Add(200, `{"jobID":"a","jobToken":"t","typeSpecificID":"d","epoch":1}`, "wait", "5", "pool")
	f.Add(200, `{"jobID":"a\u001b[2J","jobToken":"t"}`, "wait=3, other", "Mon, 02 Jan 2999 15:04:05 GMT", "p\u009b")
	f.Add(200, `{"jobID":"","jobToken":"","epoch":-9223372036854775808}`, "", "-1", "")
	f.Add(204, ``, "WAIT", "99999999999999999999", "")
	f.Add(200, `{"epoch":1e400}`, "", "", "")
	f.Add(410, `{"code":410,"message":"\u0000\u202e"}`, "", "0", "")
	f.Fuzz(func(t *testing.T, code int, body, applied, after, pool string) {
		if code < 100 || code > 999 || code >= 300 && code < 400 {
			return // net/http handles these itself
		}
		c := fakeClient(t, func(*http.Request) (*http.Response, error) {
			resp := reply(code, body)
			resp.Header.Set(protocol.HeaderPreferenceApplied, applied)
			resp.Header.Set("Retry-After", after)
			resp.Header.Set(protocol.HeaderAgentPool, pool)
			return resp, nil
		})
		defer c.Close()
		result, err := c.Poll(t.Context(), "token-of-the-pool", protocol.PollRequest{Wait: time.Second})
		if err != nil {
			for _, r := range err.Error() {
				if unicode.IsControl(r) {
					t.Fatalf("the error has a control character: %q", err)
				}
			}
			return
		}
		if result.RetryAfter < 0 || result.RetryAfter > time.Hour {
			t.Errorf("a pause of %s", result.RetryAfter)
		}
		if job := result.Job; job != nil {
			if job.JobID == "" || job.JobToken == "" || len(job.JobID) > 256 || len(job.PoolID) > 2010 {
				t.Errorf("accepted: %+v", job)
			}
			for _, r := range job.JobID + job.DeploymentID + job.RunID + job.PoolID + string(job.WorkflowType) {
				if !unicode.IsPrint(r) {
					t.Errorf("an id that cannot be shown was accepted: %+q", job.JobID)
				}
			}
		}
	})
}
