package gitea

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/server/vcs"
)

// TestRecordedViolation repeats what the server sent to Gitea 1.26.0 after a preview with a mandatory and an advisory
// violation of policies: the status of all stacks, that of the preview, and the comment. Gitea's answers are without the
// members that the client does not read. The test of deployments from a real Gitea makes the same requests.
func TestRecordedViolation(t *testing.T) {
	var calls []struct {
		Method, Path string
		Request      map[string]string
		Code         int
		Answer       json.RawMessage
	}
	must.OK(t, json.Unmarshal(must.Get(os.ReadFile(filepath.Join("testdata", "violation.json")))(t), &calls))
	sent := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // an incomplete body is another one
		var got map[string]string
		if err := json.Unmarshal(body, &got); err != nil || sent >= len(calls) {
			t.Errorf("call %d is %s %s %q: %v", sent, r.Method, r.URL.Path, body, err)
			return
		}
		call := calls[sent]
		sent++
		if diff := cmp.Diff(call.Request, got); diff != "" || r.Method != call.Method || r.URL.Path != call.Path {
			t.Errorf("%s %s (-recorded +sent):\n%s", r.Method, r.URL.Path, diff)
		}
		w.WriteHeader(call.Code)
		_, _ = w.Write(call.Answer)
	}))
	defer server.Close()
	c := must.Get(Forge{}.Connect(vcs.Connection{Reach: outbound.Reach{Anywhere: true}, BaseURL: server.URL, Credential: vcs.Credential{Password: "token"}}))(t)
	reporter, _ := c.(vcs.Reporter)
	commenter, _ := c.(vcs.Commenter)
	repo := vcs.RepoID{ID: "1", Name: "deployer/app"}
	for _, call := range calls {
		if strings.Contains(call.Path, "/comments/") {
			id, err := commenter.Comment(t.Context(), repo, 1, vcs.Comment{ID: "2", Body: call.Request["body"]})
			if err != nil || id != "2" {
				t.Errorf("the comment has the id %q, %v", id, err)
			}
			for _, line := range []string{"mandatory: lab no-bad-content: lab:index:File bad: choose another <b>content</b>\n", "advisory: lab no-file: "} {
				if !strings.Contains(call.Request["body"], line) {
					t.Errorf("the comment lacks %q", line)
				}
			}
			continue
		}
		id, err := reporter.Report(t.Context(), repo, vcs.Report{
			Commit: filepath.Base(call.Path), State: vcs.ReportFailed, Pull: 1,
			Context: call.Request["context"], Summary: call.Request["description"], URL: call.Request["target_url"],
		})
		if err != nil || id == "" {
			t.Errorf("the status has the id %q, %v", id, err)
		}
	}
	if sent != 3 {
		t.Errorf("%d calls were sent, want 3", sent)
	}
}
