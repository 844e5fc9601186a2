package gitea

import (
	"encoding/hex"
	"testing"

	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
)

const (
	before = "1111111111111111111111111111111111111111"
	after  = "2222222222222222222222222222222222222222"
	object = "3333333333333333333333333333333333333333" // of an annotated tag
	null   = "0000000000000000000000000000000000000000"
)

func header(event string) map[string]string {
	return map[string]string{
		"x-gitea-event": event, "x-gitea-delivery": "d-1",
		// The forge also sends those of others, with other names of events.
		"x-github-event": "ping", "x-github-delivery": "other", "x-gogs-event": "ping",
	}
}

func TestVerify(t *testing.T) {
	forgetest.Signatures(t, Forge{}, true, func(body, secret string) vcs.Delivery {
		return vcs.Delivery{
			Header: map[string]string{"x-gitea-signature": hex.EncodeToString(hook.MAC([]byte(secret), []byte(body)))},
			Body:   []byte(body),
		}
	})
}

func TestParse(t *testing.T) {
	const rest = `,"repository":{"id":7,"full_name":"acme/app"},"sender":{"id":12,"login":"ada"},"pusher":{"id":99,"login":"spoofed"}`
	event := func(e vcs.Event) []vcs.Event {
		e.Repo, e.Sender = vcs.RepoID{ID: "7", Name: "acme/app"}, vcs.Account{ID: "12", Name: "ada"}
		return []vcs.Event{e}
	}
	push := func(ref, before, after, more string) string {
		return `{"ref":"` + ref + `","before":"` + before + `","after":"` + after + `"` + more + rest + `}`
	}
	forgetest.Hooks(t, Forge{}, header, map[string]forgetest.Delivery{
		"push": {
			Event: "push", Body: push("refs/heads/main", before, after, `,"head_commit":{"id":"`+after+`","message":"Fix","author":{"username":"root"}}`),
			Want: event(vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", Before: before, After: after, Message: "Fix"}),
		},
		"new branch": {
			Event: "push", Body: push("refs/heads/x", null, after, ""),
			Want: event(vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/x", After: after}),
		},
		"row 26: test": {Event: "push", Body: push("refs/heads/main", after, after, ""), Ignored: vcs.ReasonTest},
		"row 38: annotated tag": {
			Event: "push", Body: push("refs/tags/v1", null, object, `,"head_commit":{"id":"`+after+`"}`),
			Want: event(vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1", After: after}),
		},
		"tag without a head commit": {
			Event: "push", Body: push("refs/tags/v1", null, object, ""),
			Want: event(vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1"}),
		},
		"deleted tag": {
			Event: "push", Body: push("refs/tags/v1", object, null, ""),
			Want: event(vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1", Deleted: true}),
		},
		"deleted branch": {
			Event: "delete", Body: `{"ref":"feature/x","ref_type":"branch"` + rest + `}`,
			Want: event(vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/feature/x", Deleted: true}),
		},
		"opened":          {Event: "pull_request", Body: `{"action":"opened","number":3` + rest + `}`, Want: event(vcs.Event{Kind: vcs.KindPull, Pull: 3})},
		"synchronized":    {Event: "pull_request_sync", Body: `{"action":"synchronized","number":3` + rest + `}`, Want: event(vcs.Event{Kind: vcs.KindPull, Pull: 3})},
		"without number":  {Event: "pull_request", Body: `{"action":"opened"` + rest + `}`, Ignored: vcs.ReasonUnsupported},
		"row 66: comment": {Event: "issue_comment", Body: `{"comment":{"body":"deploy"}` + rest + `}`, Ignored: vcs.ReasonComment},
		"renamed":         {Event: "repository", Body: `{"action":"renamed"` + rest + `}`, Want: event(vcs.Event{Kind: vcs.KindAccess})},
		"other":           {Event: "release", Body: `{"action":"published"` + rest + `}`, Ignored: vcs.ReasonUnsupported},
		"other ref":       {Event: "push", Body: push("refs/notes/x", before, after, ""), Ignored: vcs.ReasonUnsupported},
		"hostile ref":     {Event: "push", Body: push("refs/heads/a..b", before, after, ""), Ignored: vcs.ReasonUnsupported},
		"row 94: nothing": {Event: "push", Body: `{"repository":null}`, Ignored: vcs.ReasonUnsupported},
	})
}

func FuzzParse(f *testing.F) {
	forgetest.Fuzz(f, Forge{}, header, []string{"push", "delete", "pull_request", "repository", "issue_comment", ""},
		`{"ref":"refs/heads/main","before":"`+before+`","after":"`+after+`","repository":{"id":7,"full_name":"a/b"},"head_commit":null,"number":1}`,
		`{"ref":"main","ref_type":"branch","repository":{"id":7}}`)
}
