package bitbucket

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
)

func TestClient(t *testing.T) {
	forgetest.Run(t, Forge{}, forgetest.Words{
		vcs.ReportPending: "INPROGRESS", vcs.ReportRunning: "INPROGRESS", vcs.ReportAction: "INPROGRESS",
		vcs.ReportSucceeded: "SUCCESSFUL", vcs.ReportNeutral: "SUCCESSFUL", vcs.ReportFailed: "FAILED",
	}, forgetest.Bitbucket)
}

// TestRow89ShortCommit checks that the shortened commit of a pull request becomes a full one.
func TestRow89ShortCommit(t *testing.T) {
	w := forgetest.Bitbucket(t)
	head := w.Commit(t, "feature", map[string]string{"x": "1"})
	number := w.OpenPull(t, forgetest.NewPull{Source: "feature"})
	c, err := Forge{}.Connect(w.Connection())
	if err != nil {
		t.Fatal(err)
	}
	pulls, _ := c.(vcs.Pulls)
	got, err := pulls.Pull(t.Context(), vcs.RepoID{Name: w.Name()}, number)
	if err != nil || got.Head != head || len(got.Head) != 40 || got.Ref != "refs/heads/feature" {
		t.Errorf("%+v, %v", got, err)
	}
	b, _ := c.(*client)
	if _, err := b.resolve(t.Context(), "0123456789ab", w.Name()); !errors.Is(err, vcs.ErrNotFound) {
		t.Errorf("a missing commit: %v", err)
	}
}

func TestKey(t *testing.T) {
	long := strings.Repeat("project/", 10) + "a"
	if key("pulumi") != "pulumi" || len(key(long)) != maxKey || key(long) == key(long[:len(long)-1]+"b") {
		t.Errorf("keys %q and %q", key("pulumi"), key(long))
	}
}

const (
	before = "1111111111111111111111111111111111111111"
	after  = "2222222222222222222222222222222222222222"
)

func header(event string) map[string]string {
	return map[string]string{"x-event-key": event, "x-request-uuid": "d-1", "x-attempt-number": "2"}
}

func TestVerify(t *testing.T) {
	forgetest.Signatures(t, Forge{}, true, func(body, secret string) vcs.Delivery {
		return vcs.Delivery{
			Header: map[string]string{"x-hub-signature": "sha256=" + hex.EncodeToString(hook.MAC([]byte(secret), []byte(body)))},
			Body:   []byte(body),
		}
	})
}

func TestParse(t *testing.T) {
	const rest = `,"repository":{"uuid":"{7}","full_name":"acme/app"},"actor":{"uuid":"{12}","nickname":"ada","type":"user"}}`
	fill := func(events ...vcs.Event) []vcs.Event {
		for i := range events {
			events[i].Repo, events[i].Sender = vcs.RepoID{ID: "{7}", Name: "acme/app"}, vcs.Account{ID: "{12}", Name: "ada"}
		}
		return events
	}
	ref := func(kind, name, hash string) string {
		return `{"type":"` + kind + `","name":"` + name + `","target":{"hash":"` + hash + `","message":"Fix","author":{"raw":"root"}}}`
	}
	push := func(changes string) string { return `{"push":{"changes":[` + changes + `]}` + rest }
	forgetest.Hooks(t, Forge{}, header, map[string]forgetest.Delivery{
		"push": {
			Event: "repo:push", Body: push(`{"forced":false,"old":` + ref("branch", "main", before) + `,"new":` + ref("branch", "main", after) + `}`),
			Want: fill(vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", Before: before, After: after, Message: "Fix"}),
		},
		"row 88: two changes": {
			Event: "repo:push",
			Body: push(`{"old":` + ref("branch", "main", before) + `,"new":` + ref("branch", "main", after) + `},
				{"old":null,"created":true,"new":` + ref("branch", "feature", after) + `}`),
			Want: fill(
				vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", Before: before, After: after, Message: "Fix"},
				vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/feature", After: after, Message: "Fix"},
			),
		},
		"row 19: deleted": {
			Event: "repo:push", Body: push(`{"closed":true,"new":null,"old":` + ref("branch", "x", before) + `}`),
			Want: fill(vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/x", Before: before, Deleted: true}),
		},
		"row 38: tag": {
			Event: "repo:push", Body: push(`{"old":null,"new":` + ref("tag", "v1", after) + `}`),
			Want: fill(vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1", After: after, Message: "Fix"}),
		},
		"row 94: nulls":     {Event: "repo:push", Body: push(`null,{},{"old":null,"new":null},{"new":{"type":"branch","name":"x","target":null}},{"new":` + ref("bookmark", "x", after) + `}`), Ignored: vcs.ReasonUnsupported},
		"row 94: none":      {Event: "repo:push", Body: push(""), Ignored: vcs.ReasonUnsupported},
		"row 94: no push":   {Event: "repo:push", Body: `{"push":null` + rest, Ignored: vcs.ReasonUnsupported},
		"created":           {Event: "pullrequest:created", Body: `{"pullrequest":{"id":3}` + rest, Want: fill(vcs.Event{Kind: vcs.KindPull, Pull: 3})},
		"fulfilled":         {Event: "pullrequest:fulfilled", Body: `{"pullrequest":{"id":3}` + rest, Want: fill(vcs.Event{Kind: vcs.KindPull, Pull: 3})},
		"without number":    {Event: "pullrequest:created", Body: `{"pullrequest":null` + rest, Ignored: vcs.ReasonUnsupported},
		"row 66: comment":   {Event: "pullrequest:comment_created", Body: `{"comment":{}` + rest, Ignored: vcs.ReasonComment},
		"approved":          {Event: "pullrequest:approved", Body: `{"pullrequest":{"id":3}` + rest, Ignored: vcs.ReasonUnsupported},
		"renamed":           {Event: "repo:updated", Body: `{"changes":{}` + rest, Want: fill(vcs.Event{Kind: vcs.KindAccess})},
		"without a project": {Event: "repo:push", Body: `{"repository":null}`, Ignored: vcs.ReasonUnsupported},
	})
}

func FuzzParse(f *testing.F) {
	forgetest.Fuzz(f, Forge{}, header, []string{"repo:push", "pullrequest:created", "repo:updated", "pullrequest:comment_created", ""},
		`{"repository":{"uuid":"{7}"},"push":{"changes":[{"old":null,"new":{"type":"branch","name":"main","target":{"hash":"`+after+`"}}}]}}`,
		`{"repository":{"uuid":"{7}"},"push":{"changes":[{"old":{"type":"tag","name":"x"}}]}}`)
}
