package catalog_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/catalog"
)

// Commits of the deliveries.
var older, newer = strings.Repeat("b", 40), strings.Repeat("a", 40)

// delivered are deliveries with members that the server does not use, in all depths and with the names
// of those that other kinds of deliveries use.
var delivered = []struct {
	key, header, kind string
	body              string
	// used are the members that change nothing in this delivery, although the server uses them.
	used []string
}{
	{vcs.ProviderGitHub, "x-github-event", "push", `{"ref":"refs/heads/main","before":"OLD","after":"NEW","base_ref":null,"forced":false,"action":"x","number":1,
		"repository":{"id":7,"full_name":"a/b","default_branch":"main","owner":{"id":3,"login":"a"},"pushed_at":1},"sender":{"id":1,"login":"ada","type":"Bot","url":"x"},
		"installation":{"id":88,"node_id":"x"},"head_commit":{"id":"NEW","message":"m","author":{"name":"x"},"added":[]},"commits":[{"id":"NEW"}],"pusher":{"name":"x"},
		"pull_request":{"number":3},"check_run":{"name":"c","head_sha":"NEW","pull_requests":[]},"merge_group":{"head_sha":"NEW"}}`, []string{"after"}},
	{vcs.ProviderGitHub, "x-github-event", "pull_request", `{"action":"opened","number":3,"ref":"x","before":"OLD","after":"NEW","head_commit":{"id":"x"},"check_suite":{"head_sha":"x"},
		"repository":{"id":7,"full_name":"a/b","default_branch":"main"},"sender":{"id":1,"login":"ada","type":"Bot"},"installation":{"id":88},
		"pull_request":{"number":3,"id":9,"head":{"sha":"NEW","ref":"x","repo":{"id":7}},"labels":[{"name":"x"}],"draft":false}}`, nil},
	{
		vcs.ProviderGitHub, "x-github-event", "pull_request", `{"action":"assigned","number":3,"repository":{"id":7,"full_name":"a/b"},"sender":{"id":1},"pull_request":{"number":3}}`,
		[]string{"repository", "repository.id", "repository.full_name", "sender", "sender.id"},
	},
	{vcs.ProviderGitHub, "x-github-event", "check_run", `{"action":"rerequested","check_run":{"name":"c","head_sha":"NEW","id":4,"output":{"title":null},
		"pull_requests":[{"number":3,"id":5,"head":{"ref":"x"}}],"check_suite":{"id":6}},"repository":{"id":7,"full_name":"a/b","default_branch":"main"},"sender":{"id":1,"login":"ada"},
		"check_suite":{"head_sha":"x"},"pull_request":{"number":1}}`, nil},
	{
		vcs.ProviderGitHub, "x-github-event", "check_run", `{"action":"completed","check_run":{"name":"c","head_sha":"NEW","pull_requests":[{"number":3}]},"repository":{"id":7,"full_name":"a/b"}}`,
		[]string{"repository", "repository.id", "repository.full_name"},
	},
	{vcs.ProviderGitHub, "x-github-event", "check_suite", `{"action":"rerequested","check_suite":{"name":"c","head_sha":"NEW","head_branch":"x","pull_requests":[{"number":3}]},
		"repository":{"id":7,"full_name":"a/b"},"sender":{"id":1,"login":"ada"},"check_run":{"name":"x"}}`, nil},
	{vcs.ProviderGitHub, "x-github-event", "merge_group", `{"action":"checks_requested","merge_group":{"head_sha":"NEW","head_ref":"refs/heads/q","base_sha":"OLD","head_commit":{"id":"x"}},
		"repository":{"id":7,"full_name":"a/b"},"sender":{"id":1,"login":"ada"},"ref":"x","after":"x"}`, nil},
	{vcs.ProviderGitHub, "x-github-event", "repository", `{"action":"renamed","changes":{"repository":{"name":{"from":"x"}}},"repository":{"id":7,"full_name":"a/b","default_branch":"main"},"sender":{"id":1,"login":"ada"},
		"ref":"x","pull_request":{"number":1}}`, nil},
	{vcs.ProviderGitHub, "x-github-event", "installation", `{"action":"created","installation":{"id":88,"account":{"id":3}},"repositories":[{"id":7}],"sender":{"id":1,"login":"ada"},"repository":{"id":7},"ref":"x"}`, nil},

	{vcs.FlavorGitea, "x-gitea-event", "push", `{"ref":"refs/heads/main","before":"OLD","after":"NEW","compare_url":"x","commits":[{"id":"NEW"}],"total_commits":1,"ref_type":"branch","action":"x","number":1,
		"repository":{"id":7,"full_name":"a/b","clone_url":"x","default_branch":"main","owner":{"id":3}},"sender":{"id":1,"login":"ada","email":"x"},"head_commit":{"id":"NEW","message":"m","verification":null},"pusher":{"id":1}}`, []string{"after"}},
	{vcs.FlavorGitea, "x-gitea-event", "delete", `{"ref":"x","ref_type":"branch","pusher_type":"user","before":"OLD","after":"NEW","number":1,"head_commit":{"id":"x"},
		"repository":{"id":7,"full_name":"a/b","clone_url":"x","default_branch":"main"},"sender":{"id":1,"login":"ada"}}`, nil},
	{vcs.FlavorGitea, "x-gitea-event", "pull_request", `{"action":"opened","number":3,"pull_request":{"number":3,"head":{"sha":"NEW"}},"ref":"x","ref_type":"x","before":"OLD","head_commit":{"id":"x"},
		"repository":{"id":7,"full_name":"a/b","clone_url":"x","default_branch":"main"},"sender":{"id":1,"login":"ada"}}`, nil},
	{vcs.FlavorGitea, "x-gitea-event", "repository", `{"action":"renamed","number":1,"ref":"x","repository":{"id":7,"full_name":"a/b","clone_url":"x"},"sender":{"id":1,"login":"ada"}}`, nil},

	{vcs.ProviderGitLab, "", "", `{"object_kind":"push","event_name":"push","ref":"refs/heads/main","before":"OLD","after":"NEW","checkout_sha":"NEW","user_id":1,"user_username":"ada","user_name":"x","project_id":7,
		"project":{"id":7,"path_with_namespace":"a/b","default_branch":"main","name":"b"},"commits":[{"id":"NEW","message":"m","title":"x","added":[]}],"total_commits_count":1,
		"user":{"id":2,"username":"x","bot":true},"object_attributes":{"iid":3,"action":"x"},"changes":{"x":{}}}`, []string{"after"}},
	{vcs.ProviderGitLab, "", "", `{"object_kind":"merge_request","user":{"id":1,"username":"ada","bot":true,"name":"x"},"user_id":2,"ref":"x","before":"OLD","commits":[{"id":"x"}],
		"project":{"id":7,"path_with_namespace":"a/b","default_branch":"main"},"object_attributes":{"iid":3,"action":"open","id":9,"oldrev":"OLD","last_commit":{"id":"NEW"}},"changes":{"labels":{}},"checkout_sha":"x"}`, nil},
	{vcs.ProviderGitLab, "", "", `{"object_kind":"merge_request","user":{"id":1,"username":"ada"},"project":{"id":7,"path_with_namespace":"a/b"},
		"object_attributes":{"iid":3,"action":"update","oldrev":"OLD","head":{"id":"x"}}}`, nil},
	{vcs.ProviderGitLab, "", "", `{"object_kind":"merge_request","user":{"id":1,"username":"ada"},"project":{"id":7,"path_with_namespace":"a/b"},
		"object_attributes":{"iid":3,"action":"update"},"changes":{"title":{"previous":"x"},"updated_at":{}}}`, nil},
	{
		vcs.ProviderGitLab, "", "", `{"object_kind":"merge_request","user":{"id":1,"username":"ada"},"project":{"id":7,"path_with_namespace":"a/b"},"object_attributes":{"iid":3,"action":"approved","oldrev":"OLD"},"changes":{}}`,
		[]string{"project", "project.id", "project.path_with_namespace", "object_attributes.iid"},
	},

	{vcs.ProviderBitbucket, "x-event-key", "repo:push", `{"actor":{"uuid":"{1}","nickname":"ada","type":"app_user","links":{}},"pullrequest":{"id":3},
		"repository":{"uuid":"{7}","full_name":"a/b","name":"b","mainbranch":{"name":"main","type":"branch"},"project":{"key":"x"}},
		"push":{"changes":[{"forced":false,"old":{"type":"branch","name":"main","links":{},"target":{"hash":"OLD","message":"m","type":"commit"}},
			"new":{"type":"branch","name":"main","target":{"hash":"NEW","message":"m","author":{"raw":"x"},"parents":[]}},"commits":[{"hash":"NEW"}]}]}}`, []string{
		"push.changes.0.old.type", "push.changes.0.old.name", "push.changes.0.old.target.message", // of a deleted branch
	}},
	{vcs.ProviderBitbucket, "x-event-key", "pullrequest:created", `{"actor":{"uuid":"{1}","nickname":"ada","type":"user"},"repository":{"uuid":"{7}","full_name":"a/b","mainbranch":{"name":"main"}},
		"pullrequest":{"id":3,"title":"x","source":{"branch":{"name":"x"}}},"push":{"changes":[{"old":{"name":"x"}}]}}`, []string{"actor.type"}},
	{vcs.ProviderBitbucket, "x-event-key", "repo:updated", `{"actor":{"uuid":"{1}","nickname":"ada","type":"user"},"repository":{"uuid":"{7}","full_name":"a/b","mainbranch":{"name":"main"}},"changes":{"name":{"old":"x"}},
		"push":{"changes":[]},"pullrequest":{"id":3}}`, []string{"actor.type"}},

	{vcs.ProviderAzure, "", "", `{"subscriptionId":"s","notificationId":4,"id":"x","eventType":"git.push","publisherId":"tfs","message":{"text":"x"},"resourceVersion":"1.0","createdDate":"x",
		"resource":{"commits":[{"commitId":"NEW","author":{"name":"x"}}],"refUpdates":[{"name":"refs/heads/main","oldObjectId":"OLD","newObjectId":"NEW","repositoryId":"x"}],
			"repository":{"id":"7","name":"b","remoteUrl":"https://dev.azure.com/o/p/_git/b","defaultBranch":"refs/heads/main","url":"x","project":{"id":"8","name":"p","state":"x"}},
			"pushedBy":{"id":"1","uniqueName":"ada","displayName":"x"},"pushId":5,"date":"x","url":"x","createdBy":{"id":"2"},"pullRequestId":3,"status":"active"},"resourceContainers":{"project":{"id":"8"}}}`, nil},
	{vcs.ProviderAzure, "", "", `{"subscriptionId":"s","notificationId":4,"eventType":"git.pullrequest.created",
		"resource":{"repository":{"id":"7","name":"b","remoteUrl":"https://dev.azure.com/o/p/_git/b","defaultBranch":"x","project":{"id":"8","name":"p"}},"createdBy":{"id":"1","uniqueName":"ada"},"pullRequestId":3,
			"status":"active","title":"x","reviewers":[{"vote":0}],"pushedBy":{"id":"2"},"refUpdates":[{"name":"x"}],"lastMergeCommit":{"commitId":"NEW"}}}`, nil},
	{vcs.ProviderAzure, "", "", `{"subscriptionId":"s","notificationId":4,"eventType":"git.pullrequest.merged",
		"resource":{"repository":{"id":"7","name":"b"},"createdBy":{"id":"1","uniqueName":"ada"},"pullRequestId":3,"status":"completed","mergeId":"x"}}`, []string{"resource.status"}},

	{vcs.FlavorGit, "", "", `{"event":"push","repoUrl":"https://git.example/a/b","branch":"main","commit":"NEW","before":"OLD","sender":"ada","message":"m","changedFiles":["x"],"deliveryId":"d","tag":"v1","extra":{"x":1}}`, nil},
	{vcs.FlavorGit, "", "", `{"event":"tag_push","repoUrl":"https://git.example/a/b","tag":"v1","commit":"NEW","before":"OLD","sender":"ada","message":"m","changedFiles":["x"],"deliveryId":"d","branch":"main"}`, nil},
}

// TestUnusedMembers replaces each member of a delivery that changes nothing when it is missing by values
// of other types. They must change nothing either: forges add and change members without notice, and
// disable webhooks that fail.
func TestUnusedMembers(t *testing.T) {
	replaced := 0
	for n, tt := range delivered {
		var tree any
		if err := json.Unmarshal([]byte(strings.NewReplacer("OLD", older, "NEW", newer).Replace(tt.body)), &tree); err != nil {
			t.Fatalf("%s %d: %v", tt.key, n, err)
		}
		parse := func() (vcs.Parsed, error) {
			body, err := json.Marshal(tree)
			if err != nil {
				t.Fatal(err)
			}
			d := vcs.Delivery{Body: body, Header: map[string]string{"x-github-delivery": "d", "x-gitea-delivery": "d", "idempotency-key": "d", "x-request-uuid": "d"}}
			if tt.header != "" {
				d.Header[tt.header] = tt.kind
			}
			return catalog.Forges()[tt.key].Parse(d)
		}
		whole, err := parse()
		if err != nil {
			t.Fatalf("%s %d: %v", tt.key, n, err)
		}
		members(tree, "", func(path string, set func(any), remove func()) {
			remove()
			if without, err := parse(); err != nil || !cmp.Equal(without, whole) || slices.Contains(tt.used, path) {
				return
			}
			for _, odd := range []any{7, "x", []any{}, map[string]any{"id": []any{}}, true, -1.5} {
				set(odd)
				if got, err := parse(); err != nil || !cmp.Equal(got, whole) {
					t.Errorf("%s %s: the unused member %s is %v: %v\n%s", tt.key, whole.Ignored.Detail, path, odd, err, cmp.Diff(whole, got))
					break
				}
				replaced++
			}
		})
	}
	if replaced < 500 {
		t.Errorf("replaced %d values", replaced)
	}
}

// members calls visit for each member and element of a tree, with functions that replace and remove it,
// and restores it.
func members(tree any, path string, visit func(path string, set func(any), remove func())) {
	join := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	switch node := tree.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(node)) {
			value := node[name]
			visit(join(name), func(v any) { node[name] = v }, func() { delete(node, name) })
			node[name] = value
			members(value, join(name), visit)
		}
	case []any:
		for i, value := range node {
			members(value, join(strconv.Itoa(i)), visit)
		}
	}
}
