package gitlab

import (
	"encoding/base64"
	"strconv"
	"testing"
	"time"

	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/forges/hook"
)

func TestClient(t *testing.T) {
	forgetest.Run(t, Forge{}, forgetest.Words{
		vcs.ReportPending: "pending", vcs.ReportRunning: "running", vcs.ReportAction: "pending",
		vcs.ReportSucceeded: "success", vcs.ReportNeutral: "success", vcs.ReportFailed: "failed",
	}, forgetest.GitLab)
}

const (
	before = "1111111111111111111111111111111111111111"
	after  = "2222222222222222222222222222222222222222"
	object = "3333333333333333333333333333333333333333" // of an annotated tag
	null   = "0000000000000000000000000000000000000000"
)

func header(string) map[string]string {
	return map[string]string{"idempotency-key": "d-1", "x-gitlab-event-uuid": "other", "x-gitlab-event": "ignored", "x-gitlab-instance": "https://evil.example.com"}
}

func TestVerifyToken(t *testing.T) {
	forgetest.Signatures(t, Forge{}, false, func(body, secret string) vcs.Delivery {
		return vcs.Delivery{Header: map[string]string{"x-gitlab-token": secret}, Body: []byte(body)}
	})
}

func signed(body, secret string, at time.Time) vcs.Delivery {
	sent := strconv.FormatInt(at.Unix(), 10)
	mac := hook.MAC(signingKey([]byte(secret)), []byte("id-1."+sent+"."+body))
	return vcs.Delivery{
		Header: map[string]string{"webhook-id": "id-1", "webhook-timestamp": sent, "webhook-signature": "v1," + base64.StdEncoding.EncodeToString(mac)},
		Body:   []byte(body),
	}
}

func TestVerifySignature(t *testing.T) {
	forgetest.Signatures(t, Forge{}, true, func(body, secret string) vcs.Delivery { return signed(body, secret, time.Now()) })
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a key of some bytes"))
	for age, ok := range map[time.Duration]bool{0: true, 4 * time.Minute: true, 6 * time.Minute: false, -6 * time.Minute: false} {
		if err := (Forge{}).Verify(signed("{}", secret, time.Now().Add(-age)), [][]byte{[]byte(secret)}); (err == nil) != ok {
			t.Errorf("after %s: %v", age, err)
		}
	}
	d := signed("{}", "right", time.Now())
	d.Header["webhook-signature"] = "v1a,xxx v1,AAAA " + d.Header["webhook-signature"]
	if err := (Forge{}).Verify(d, [][]byte{[]byte("right")}); err != nil {
		t.Errorf("one of several signatures: %v", err)
	}
}

func TestParse(t *testing.T) {
	const rest = `,"user_id":12,"user_username":"ada","user_name":"Ada","project_id":7,"project":{"id":7,"path_with_namespace":"acme/platform/app","default_branch":"main"}}`
	event := func(e vcs.Event) []vcs.Event {
		e.Repo, e.Sender = vcs.RepoID{ID: "7", Name: "acme/platform/app"}, vcs.Account{ID: "12", Name: "ada"}
		return []vcs.Event{e}
	}
	push := func(kind, ref, before, after, checkout, more string) string {
		return `{"object_kind":"` + kind + `","ref":"` + ref + `","before":"` + before + `","after":"` + after + `","checkout_sha":` + checkout + more + rest
	}
	merge := func(attributes, more string) string {
		return `{"object_kind":"merge_request","user":{"id":12,"username":"ada"},"object_attributes":` + attributes + more + `,"project":{"id":7,"path_with_namespace":"acme/platform/app"}}`
	}
	pull := event(vcs.Event{Kind: vcs.KindPull, Pull: 3})
	forgetest.Hooks(t, Forge{}, header, map[string]forgetest.Delivery{
		"row 36: push": {
			Body: push("push", "refs/heads/main", before, after, `"`+after+`"`, `,"commits":[{"id":"`+before+`","message":"Old"},{"id":"`+after+`","message":"Fix","author":{"name":"root"}}],"total_commits_count":25`),
			Want: event(vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", Before: before, After: after, Message: "Fix"}),
		},
		"new branch":      {Body: push("push", "refs/heads/x", null, after, `"`+after+`"`, `,"commits":[]`), Want: event(vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/x", After: after})},
		"row 19: deleted": {Body: push("push", "refs/heads/x", before, null, "null", ""), Want: event(vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/x", Before: before, Deleted: true})},
		"row 26: test":    {Body: push("push", "refs/heads/x", after, after, `"`+after+`"`, ""), Ignored: vcs.ReasonTest},
		"row 38: annotated tag": {
			Body: push("tag_push", "refs/tags/v1", null, object, `"`+after+`"`, ""),
			Want: event(vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1", After: after}),
		},
		"row 42: deleted tag":           {Body: push("tag_push", "refs/tags/v1", object, null, "null", ""), Want: event(vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1", Deleted: true})},
		"opened":                        {Body: merge(`{"iid":3,"action":"open"}`, ""), Want: pull},
		"merged":                        {Body: merge(`{"iid":3,"action":"merge"}`, ""), Want: pull},
		"new commit":                    {Body: merge(`{"iid":3,"action":"update","oldrev":"`+before+`"}`, ""), Want: pull},
		"row 53: update without oldrev": {Body: merge(`{"iid":3,"action":"update"}`, `,"changes":{"description":{}}`), Ignored: vcs.ReasonUnchanged},
		"row 54: retargeted":            {Body: merge(`{"iid":3,"action":"update"}`, `,"changes":{"target_branch":{"previous":"dev","current":"main"}}`), Want: pull},
		"approved":                      {Body: merge(`{"iid":3,"action":"approved"}`, ""), Ignored: vcs.ReasonUnsupported},
		"row 66: comment":               {Body: `{"object_kind":"note","object_attributes":{"note":"deploy"}` + rest, Ignored: vcs.ReasonComment},
		"pipeline":                      {Body: `{"object_kind":"pipeline"` + rest, Ignored: vcs.ReasonUnsupported},
		"row 94: nothing":               {Body: `{"object_kind":"merge_request","object_attributes":null,"project":{"id":7}}`, Ignored: vcs.ReasonUnsupported},
		"row 94: no project":            {Body: `{"object_kind":"push","project":null}`, Ignored: vcs.ReasonUnsupported},
	})
}

func FuzzParse(f *testing.F) {
	forgetest.Fuzz(f, Forge{}, header, []string{""},
		`{"object_kind":"push","ref":"refs/heads/main","before":"`+before+`","after":"`+after+`","checkout_sha":null,"project":{"id":7},"commits":null}`,
		`{"object_kind":"merge_request","object_attributes":{"iid":3,"action":"update"},"changes":null,"project":{"id":7}}`)
}
