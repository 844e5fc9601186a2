package azure

import (
	"encoding/base64"
	"testing"

	"workflowagent/internal/dev/forgetest"
	"workflowagent/internal/server/vcs"
)

func TestClient(t *testing.T) {
	forgetest.Run(t, Forge{}, forgetest.Words{
		vcs.ReportPending: "pending", vcs.ReportRunning: "pending", vcs.ReportAction: "pending",
		vcs.ReportSucceeded: "succeeded", vcs.ReportNeutral: "succeeded", vcs.ReportFailed: "failed",
	}, forgetest.Azure)
}

// TestOtherOrganization checks that the integration's token reaches only its own repositories.
func TestOtherOrganization(t *testing.T) {
	connection := forgetest.Azure(t).Connection()
	c, err := Forge{}.Connect(connection)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other/platform/app", "acme/other/app", "acme/platform", "acme/platform/a/b", "acme/platform/.."} {
		if _, err := c.Find(t.Context(), name); err == nil {
			t.Errorf("the name %q was accepted", name)
		}
		if _, err := c.Head(t.Context(), vcs.RepoID{ID: "x", Name: name}, "refs/heads/main"); err == nil {
			t.Errorf("the head of %q was read", name)
		}
	}
	for _, owner := range []string{"", "a/b"} {
		connection.Owner = owner
		if _, err := (Forge{}).Connect(connection); err == nil {
			t.Errorf("the organization %q was accepted", owner)
		}
	}
}

const (
	before = "1111111111111111111111111111111111111111"
	after  = "2222222222222222222222222222222222222222"
	null   = "0000000000000000000000000000000000000000"
)

func header(string) map[string]string { return nil }

func TestVerify(t *testing.T) {
	forgetest.Signatures(t, Forge{}, false, func(body, secret string) vcs.Delivery {
		return vcs.Delivery{
			Header: map[string]string{"authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte("pulumi:"+secret))},
			Body:   []byte(body),
		}
	})
}

func TestParse(t *testing.T) {
	const repository = `"repository":{"id":"r-7","name":"app","project":{"id":"p-1","name":"platform"},"remoteUrl":"https://dev.azure.com/acme/platform/_git/app"}`
	body := func(event, resource string) string {
		return `{"subscriptionId":"s","notificationId":5,"eventType":"` + event + `","resource":{` + repository + `,"pushedBy":{"id":"u-12","uniqueName":"ada"},"createdBy":{"id":"u-12","uniqueName":"ada"},` + resource + `}}`
	}
	fill := func(events ...vcs.Event) []vcs.Event {
		for i := range events {
			events[i].Repo, events[i].Sender = vcs.RepoID{ID: "r-7", Name: "acme/platform/app"}, vcs.Account{ID: "u-12", Name: "ada"}
		}
		return events
	}
	update := func(name, old, new string) string {
		return `{"name":"` + name + `","oldObjectId":"` + old + `","newObjectId":"` + new + `"}`
	}
	forgetest.Hooks(t, Forge{}, header, map[string]forgetest.Delivery{
		"push": {
			Body: body("git.push", `"commits":[{"author":{"name":"root"}}],"refUpdates":[`+update("refs/heads/main", before, after)+`]`),
			Want: fill(vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", Before: before, After: after}),
		},
		"row 45: branch and tag": {
			Body: body("git.push", `"refUpdates":[`+update("refs/heads/main", null, after)+`,`+update("refs/tags/v1", null, after)+`,`+update("refs/heads/old", before, null)+`]`),
			Want: fill(
				vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/main", After: after},
				vcs.Event{Kind: vcs.KindTag, Ref: "refs/tags/v1"}, // row 38: the forge must be asked
				vcs.Event{Kind: vcs.KindPush, Ref: "refs/heads/old", Before: before, Deleted: true},
			),
		},
		"row 94: no updates":    {Body: body("git.push", `"refUpdates":[]`), Ignored: vcs.ReasonUnsupported},
		"row 94: null updates":  {Body: body("git.push", `"refUpdates":[null,{}]`), Ignored: vcs.ReasonUnsupported},
		"row 94: no resource":   {Body: `{"eventType":"git.push","resource":null}`, Ignored: vcs.ReasonUnsupported},
		"created":               {Body: body("git.pullrequest.created", `"pullRequestId":3,"status":"active"`), Want: fill(vcs.Event{Kind: vcs.KindPull, Pull: 3})},
		"abandoned":             {Body: body("git.pullrequest.updated", `"pullRequestId":3,"status":"abandoned"`), Want: fill(vcs.Event{Kind: vcs.KindPull, Pull: 3})},
		"row 62: merge attempt": {Body: body("git.pullrequest.merged", `"pullRequestId":3,"status":"active"`), Ignored: vcs.ReasonMergeAttempt},
		"merged":                {Body: body("git.pullrequest.merged", `"pullRequestId":3,"status":"completed"`), Want: fill(vcs.Event{Kind: vcs.KindPull, Pull: 3})},
		"without number":        {Body: body("git.pullrequest.created", `"status":"active"`), Ignored: vcs.ReasonUnsupported},
		"row 66: comment":       {Body: body("ms.vss-code.git-pullrequest-comment-event", `"comment":{}`), Ignored: vcs.ReasonComment},
		"build":                 {Body: body("build.complete", `"id":1`), Ignored: vcs.ReasonUnsupported},
	})
	parsed, err := Forge{}.Parse(vcs.Delivery{Body: []byte(body("git.push", `"refUpdates":[]`))})
	if err != nil || parsed.ID != "s/5" {
		t.Errorf("%+v, %v", parsed, err)
	}
}

// TestOrganization contains the forms of the addresses in deliveries, old ones too.
func TestOrganization(t *testing.T) {
	for address, want := range map[string]string{
		"https://dev.azure.com/acme/My%20Project/_git/My%20Repo":                      "acme/My Project/My Repo",
		"https://acme@dev.azure.com/acme/My%20Project/_git/My%20Repo":                 "acme/My Project/My Repo",
		"https://dev.azure.com/acme/_git/My%20Repo":                                   "acme/My Project/My Repo",
		"https://acme.visualstudio.com/My%20Project/_git/My%20Repo":                   "acme/My Project/My Repo",
		"https://acme.visualstudio.com/DefaultCollection/My%20Project/_git/My%20Repo": "acme/My Project/My Repo",
		"https://Acme.VisualStudio.com/DefaultCollection/_git/My%20Repo":              "acme/My Project/My Repo",
		"https://tfs.example.com/tfs/DefaultCollection/My%20Project/_git/My%20Repo":   "DefaultCollection/My Project/My Repo",
		"https://tfs.example.com:8080/tfs/DefaultCollection/_git/My%20Repo":           "DefaultCollection/My Project/My Repo",
		"https://dev.azure.com/My%20Project/My%20Project/_git/My%20Repo":              "My Project/My Project/My Repo",
		"https://dev.azure.com/acme/_apis/git/repositories/r-7":                       "My Project/My Repo",
		"%zz": "My Project/My Repo",
		"":    "My Project/My Repo",
	} {
		body := `{"eventType":"git.pullrequest.created","resource":{"pullRequestId":3,"repository":{"id":"r-7","name":"My Repo","project":{"id":"p-1","name":"My Project"},"remoteUrl":"` + address + `"}}}`
		parsed, err := Forge{}.Parse(vcs.Delivery{Body: []byte(body)})
		if err != nil || len(parsed.Events) != 1 || parsed.Events[0].Repo != (vcs.RepoID{ID: "r-7", Name: want}) {
			t.Errorf("%s: %+v, %v, want %s", address, parsed, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	forgetest.Fuzz(f, Forge{}, header, []string{""},
		`{"eventType":"git.push","resource":{"repository":{"id":"7","project":null,"remoteUrl":"%zz"},"refUpdates":[{"name":"refs/heads/main","newObjectId":"`+after+`"}]}}`,
		`{"eventType":"git.pullrequest.merged","resource":{"repository":{"id":"7"},"pullRequestId":1}}`)
}
