package update_test

import (
	"html"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

type m = map[string]any

const (
	base    = "/acme/web/prod"
	hostile = "<b onclick=x>\x1b[31m\u202egnp.exe"
)

func urn(name string) string { return "urn:pulumi:prod::web::aws:sqs/queue:Queue::" + name }

// update is an update from the CLI.
type update struct {
	t           *testing.T
	s           *consoletest.Server
	path, token string
	sequence    int
}

func start(t *testing.T, s *consoletest.Server, message string, environment map[string]string) *update {
	t.Helper()
	u := &update{t: t, s: s}
	const path = "/api/stacks/acme/web/prod/update"
	var made struct{ UpdateID string }
	s.API(http.MethodPost, path, m{"name": "web", "runtime": "go", "metadata": m{"message": message, "environment": environment}, "config": m{"web:key": m{"string": "opaque", "secret": true}}}, &made)
	u.path = path + "/" + made.UpdateID
	var started struct{ Token string }
	s.API(http.MethodPost, u.path, m{}, &started)
	u.token = "update-token " + started.Token
	return u
}

func (u *update) post(path string, body m) {
	u.t.Helper()
	if code, answer := u.s.APIAs(u.token, http.MethodPost, u.path+path, body, nil); code >= 300 {
		u.t.Fatalf("%s: status %d: %s", path, code, answer)
	}
}

// step sends the events of a step that begins and ends at some seconds; an end of 0 means that it has not ended.
func (u *update) step(op, name string, from, to int, failed bool, more m) {
	u.t.Helper()
	meta := m{"op": op, "urn": urn(name), "type": "aws:sqs/queue:Queue"}
	maps.Copy(meta, more)
	list := []m{{"sequence": u.sequence, "timestamp": 1_000_000_000 + from, "resourcePreEvent": m{"metadata": meta}}}
	if failed {
		list = append(list, m{"sequence": u.sequence + 1, "timestamp": 1_000_000_000 + to, "diagnosticEvent": m{"urn": urn(name), "severity": "error", "message": "refused: " + hostile + "\nsecond line"}},
			m{"sequence": u.sequence + 2, "timestamp": 1_000_000_000 + to, "resOpFailedEvent": m{"metadata": meta}})
	} else if to > 0 {
		list = append(list, m{"sequence": u.sequence + 1, "timestamp": 1_000_000_000 + to, "resOutputsEvent": m{"metadata": meta}})
	}
	u.sequence += len(list)
	u.post("/events/batch", m{"events": list})
}

var tags = regexp.MustCompile(`<[^>]*>`)

// page opens a page, which must contain texts.
func page(t *testing.T, b *consoletest.Browser, path string, wants ...string) string {
	t.Helper()
	p := b.Get(path)
	text := strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(p.Body, " "))), " ")
	if p.Status != http.StatusOK || p.Contains("<b onclick") || strings.ContainsAny(p.Body, "\x1b\u202e") || strings.Contains(p.Body, "opaque") {
		t.Errorf("%s: status %d, or the page contains HTML, controls or secrets: %s", path, p.Status, regexp.MustCompile("(?s).{60}(<b onclick|\x1b|\u202e|opaque).{60}").FindString(p.Body))
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %q: %s", path, want, text)
		}
	}
	if n := strings.Count(p.Body, "<h1"); n != 1 {
		t.Errorf("%s has %d titles", path, n)
	}
	return text
}

// TestUpdate shows an update from the CLI while it runs and after it has failed, and when its events are no longer kept.
func TestUpdate(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("web", "prod")
	first := start(t, s, "First", nil)
	first.step("create", "queue", 1, 3, false, nil)
	first.post("/complete", m{"status": "succeeded"})
	b := s.SignIn()
	page(t, b, base+"/updates/1", "web/ prod v1", "Update, ran", "queue sqs:Queue create", "No messages", "State of v1")

	u := start(t, s, hostile+" message\nand more", map[string]string{
		"git.head": strings.Repeat("c0ffee1", 5), "git.dirty": "true", "git.headName": "refs/heads/" + hostile, "git.author": hostile, "pulumi.version": "v3.150.0", "ci.system": hostile, "ci.build.number": "7",
	})
	u.step("create-replacement", hostile, 1, 5, false, m{"keys": []string{"zone", hostile}, "detailedDiff": m{"zone": m{"diffKind": "update-replace"}}, "old": m{"inputs": m{"zone": "a", "size": 1}}, "new": m{"inputs": m{"zone": hostile, "size": 1}}})
	u.step("delete-replaced", hostile, 5, 9, false, nil)
	u.step("update", "slow", 2, 0, false, nil)
	page(t, b, base+"/updates/2", "v2 running uncommitted changes", "Updating for", "Administrator", "c0ffee1", "gnp.exe message", "by <b onclick=x>", "gnp.exe, build 7", "pulumi v3.150.0", "slow sqs:Queue", "running", "replace", "No messages yet")
	page(t, b, base+"/updates/2?urn="+escape(urn(hostile)), "Replaced because zone , <b onclick=x>", "cannot change in place; the new one is created first.", "zone replaces a ", "1 unchanged property.", "v2 replaced it")

	u.step("update", "queue", 3, 6, true, m{"diffs": []string{"size"}, "old": m{"inputs": m{"size": 1}}, "new": m{"inputs": m{"size": 2}}})
	u.post("/complete", m{"status": "failed"})
	page(t, b, base+"/updates/2", "queue could not be updated", "refused: <b onclick=x>", "second line", "interrupted", "Compare with v1", "Deletes, replaces and failures failed queue sqs:Queue failed")
	page(t, b, base+"/updates/2?view=diff", "Could not be updated", "size 1 2", "v2 failed on it", "v1 created it")
	page(t, b, base+"/updates/2?view=timeline", "pulumi update", "queue sqs:Queue", "3s", "in whole seconds", "The two clocks differ")
	page(t, b, base+"/updates/2?view=config", "web:key [secret]")
	page(t, b, base+"/updates/2?view=environment", "pulumi.version v3.150.0")

	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE updates SET events_expired = 1 WHERE version = 2")
		return err
	}))
	page(t, b, base+"/updates/2", "The update failed", "The server no longer keeps the events of this update", "The events are no longer kept", "Compare with v1")
	page(t, b, base+"/updates/2?urn="+escape(urn("queue")), "and so not its differences")
	page(t, b, base+"/updates/2?view=timeline", "the server no longer keeps the events of this update")
}

func escape(text string) string {
	var out strings.Builder
	for _, c := range []byte(text) {
		out.WriteString("%" + string("0123456789ABCDEF"[c>>4]) + string("0123456789ABCDEF"[c&15]))
	}
	return out.String()
}
