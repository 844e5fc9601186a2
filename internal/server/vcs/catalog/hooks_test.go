package catalog_test

import (
	"net/url"
	"strings"
	"testing"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/catalog"
)

// odd are members of other types than those of the kinds of deliveries that the server handles.
const odd = `"action":7,"number":"x","ref_type":[],"pull_request":"x","check_run":1,"merge_group":[],"installation":"x","object_attributes":"x",
	"changes":3,"user":"x","commits":"x","pullrequest":"x","changedFiles":"x","timestamp":{},"tag":4,"subscriptionId":{},"notificationId":"x"`

// TestMembersOfOtherKinds sends deliveries with members of other types than documented. They are fatal
// only in a kind that uses them: unforeseen kinds must not make a forge disable its webhook.
func TestMembersOfOtherKinds(t *testing.T) {
	sha := strings.Repeat("a", 40)
	for _, tt := range []struct {
		key, header, kind string
		push, wrong       string // members of a push, and the same with a member of another type
	}{
		{
			vcs.ProviderGitHub, "x-github-event", "push",
			`"repository":{"id":7,"full_name":"a/b"},"sender":{"id":1},"ref":"refs/heads/main","before":"` + strings.Repeat("b", 40) + `","after":"` + sha + `","head_commit":{"id":"` + sha + `"}`,
			`"repository":{"id":7,"full_name":"a/b"},"ref":["refs/heads/main"]`,
		},
		{
			vcs.FlavorGitea, "x-gitea-event", "push",
			`"repository":{"id":7,"full_name":"a/b"},"sender":{"id":1},"ref":"refs/heads/main","before":"` + strings.Repeat("b", 40) + `","after":"` + sha + `","head_commit":{"id":"` + sha + `"}`,
			`"repository":{"id":"7"},"ref":"refs/heads/main"`,
		},
		{
			vcs.ProviderGitLab, "", "push",
			`"object_kind":"push","project":{"id":7,"path_with_namespace":"a/b"},"user_id":1,"ref":"refs/heads/main","before":"` + strings.Repeat("b", 40) + `","after":"` + sha + `","checkout_sha":"` + sha + `"`,
			`"object_kind":"push","project":{"id":7},"ref":{}`,
		},
		{
			vcs.ProviderBitbucket, "x-event-key", "repo:push",
			`"repository":{"uuid":"{7}","full_name":"a/b"},"push":{"changes":[{"new":{"type":"branch","name":"main","target":{"hash":"` + sha + `"}}}]}`,
			`"repository":{"uuid":"{7}"},"push":[]`,
		},
		{
			vcs.ProviderAzure, "", "git.push",
			`"eventType":"git.push","resource":{"repository":{"id":"7","name":"b"},"refUpdates":[{"name":"refs/heads/main","oldObjectId":"` + strings.Repeat("b", 40) + `","newObjectId":"` + sha + `"}]}`,
			`"eventType":"git.push","resource":{"repository":{"id":"7"},"refUpdates":"x"}`,
		},
		{
			vcs.FlavorGit, "", "push",
			`"event":"push","repoUrl":"https://git.example/a/b","branch":"main","commit":"` + sha + `"`,
			`"event":"push","repoUrl":"https://git.example/a/b","branch":["main"],"commit":"` + sha + `"`,
		},
	} {
		t.Run(tt.key, func(t *testing.T) {
			forge := catalog.Forges()[tt.key]
			parse := func(kind, members string) (vcs.Parsed, error) {
				d := vcs.Delivery{Header: map[string]string{"content-type": "application/json"}, Body: []byte("{" + members + "}")}
				if tt.header != "" {
					d.Header[tt.header] = kind
				}
				return forge.Parse(d)
			}
			others := odd
			switch tt.key { // members that a push of this forge uses
			case vcs.FlavorGit:
				others = strings.NewReplacer(`"changedFiles":"x",`, "", `"timestamp":{},`, "").Replace(others)
			case vcs.ProviderGitLab:
				others = strings.Replace(others, `"commits":"x",`, "", 1)
			}
			if p, err := parse(tt.kind, tt.push+","+others); err != nil || len(p.Events) != 1 || p.Events[0].After != sha {
				t.Errorf("a push with members of other kinds: %+v, %v", p, err)
			}
			if p, err := parse(tt.kind, tt.wrong); err == nil {
				t.Errorf("a push with a member of another type: %+v", p)
			}
			unknown := strings.NewReplacer(`"object_kind":"push"`, `"object_kind":"odd"`, `"eventType":"git.push"`, `"eventType":"odd"`, `"event":"push"`, `"event":"odd"`).Replace(tt.wrong)
			for _, kind := range []string{"odd", ""} {
				if p, err := parse(kind, unknown+","+odd); err != nil || len(p.Events) != 0 || p.Ignored.Reason == "" {
					t.Errorf("the unknown kind %q: %+v, %v", kind, p, err)
				}
			}
		})
	}
}

// TestForms sends a push as a form, which is the default of GitHub's webhooks.
func TestForms(t *testing.T) {
	const payload = `{"repository":{"id":7,"full_name":"a/b"},"ref":"refs/heads/main","before":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","after":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}`
	for key, header := range map[string]string{vcs.ProviderGitHub: "x-github-event", vcs.FlavorGitea: "x-gitea-event"} {
		d := vcs.Delivery{
			Header: map[string]string{header: "push", "content-type": "application/x-www-form-urlencoded; charset=utf-8"},
			Body:   []byte(url.Values{"payload": {payload}}.Encode()),
		}
		p, err := catalog.Forges()[key].Parse(d)
		if err != nil || len(p.Events) != 1 || p.Events[0].Ref != "refs/heads/main" {
			t.Errorf("%s: %+v, %v", key, p, err)
		}
		d.Body = []byte("a=b")
		if _, err := catalog.Forges()[key].Parse(d); err == nil || !strings.Contains(err.Error(), "application/json") {
			t.Errorf("%s: a form without a payload: %v, want an error that names the setting", key, err)
		}
		d.Header[header] = "star"
		if p, err := catalog.Forges()[key].Parse(d); err != nil || p.Ignored.Reason == "" || p.ID == "" {
			t.Errorf("%s: another kind as a form without a payload: %+v, %v", key, p, err)
		}
	}
}
