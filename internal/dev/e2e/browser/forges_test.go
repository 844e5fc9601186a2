package browser

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server"
	"workflowagent/internal/server/config"
	"workflowagent/internal/server/gitops/dispatch"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
)

// integration connects the organization to a git host, whose repository the stack watches, and returns
// its id. The database contains what such a host reports, with hostile names.
func (w *world) integration(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	var made struct{ ID string }
	err := w.Server.Call(ctx, http.MethodPost, "/api/console/orgs/"+w.org+"/integrations/custom", map[string]any{
		"name": hostile, "flavor": "gitea", "baseUrl": "https://git.invalid", "credentials": map[string]string{"personalAccessToken": "none"},
		"repositories": []any{map[string]string{"name": "acme/web"}}, "forkPullRequests": "approve", "events": "poll",
	}, &made)
	if err == nil {
		err = w.Server.Call(ctx, http.MethodPost, "/api/stacks/"+w.stack.Name+"/deployments/settings", map[string]any{
			"sourceContext": map[string]any{"git": map[string]string{"branch": "main"}},
			"vcs": map[string]any{
				"provider": "custom", "repository": "acme/web", "deployCommits": true, "previewPullRequests": true, "deployTags": true,
				"paths": []string{"infra/**"}, "tagFilters": []string{"v*"},
			},
		}, nil)
	}
	must.OK(t, err)
	cfg := must.Get(config.Load(config.LoadOptions{Flags: map[string]string{"data_dir": w.Server.DataDir}, Cwd: t.TempDir()}))(t)
	db := must.Get(server.OpenDatabase(context.WithoutCancel(ctx), cfg, storetest.Log()))(t)
	defer db.Close()
	must.OK(t, db.Write(ctx, scope.Server(), func(tx *store.Tx) error { return report(tx, made.ID) }))
	return made.ID
}

// report stores what the git host of an integration reports about the repository of its only watch.
func report(tx *store.Tx, id string) error {
	i, err := tx.Integration(id)
	if err != nil {
		return err
	}
	watches, err := tx.WatchesOfIntegration(id)
	if err != nil || len(watches) != 1 {
		return errors.Join(err, errors.New("the integration has no watch"))
	}
	now, commit := tx.Now(), strings.Repeat("0123456789", 4)
	repo := store.VCSRepo{
		ID: identity.NewID(), IntegrationID: id, RemoteID: "7", Name: "acme/web", CloneURL: "https://git.invalid/acme/web.git",
		HookAt: now.Add(-time.Minute), PolledAt: now.Add(-time.Hour), PollAt: now.Add(time.Hour), Problem: hostile, CreatedAt: now,
	}
	w := watches[0]
	w.RepoID, w.Problem = repo.ID, ""
	i.Problem = hostile
	err = errors.Join(tx.InsertRepo(repo), tx.SaveWatch(w), tx.SaveIntegration(i))
	for number, fork := range map[int64]bool{7: true, 8: false} {
		err = errors.Join(err, tx.SavePull(store.VCSPull{
			ID: identity.NewID(), RepoID: repo.ID, Number: number, State: string(vcs.PullOpen), Head: commit, Base: "main", Source: hostile, Ref: "refs/pull/7/head",
			Title: hostile + strings.Repeat("long", 60), URL: "https://git.invalid/acme/web/pulls/7", Fork: fork, Author: hostile, UpdatedAt: now, ReadAt: now,
		}))
	}
	for n, e := range []store.VCSEvent{
		{Kind: string(vcs.KindPush), Subject: vcs.BranchPrefix + hostile, Source: dispatch.SourceWebhook, Done: true},
		{Kind: string(vcs.KindPull), Subject: "pull/7", Source: dispatch.SourcePoll, Reason: string(vcs.ReasonWaiting), Detail: hostile},
		{Kind: string(vcs.KindTag), Subject: "refs/tags/v1", Source: dispatch.SourceAPI, Done: true, Reason: string(vcs.ReasonDuplicate)},
	} {
		e.ID, e.OrgID, e.IntegrationID, e.RepoID, e.RepoName, e.DeliveryID = identity.NewID(), i.OrgID, id, repo.ID, repo.Name, identity.NewID()
		e.AfterID, e.Document, e.ReceivedAt, e.TryAt = commit, "{}", now.Add(-time.Duration(n)*time.Minute), now.Add(time.Hour)
		err = errors.Join(err, tx.InsertVCSEvent(e))
		if e.Done && e.Reason == "" {
			d := store.VCSDecision{EventID: e.ID, StackID: w.StackID, CommitID: commit, DecidedAt: now}
			d.ID, d.Action, d.Reason, d.Version = identity.NewID(), string(vcs.ActionUpdate), string(vcs.ReasonPushed), 1
			err = errors.Join(err, tx.InsertVCSDecision(d))
			d.ID, d.Action, d.Reason, d.Version, d.Detail = identity.NewID(), "", string(vcs.ReasonNoPath), 0, hostile
			err = errors.Join(err, tx.InsertVCSDecision(d))
		}
	}
	return err
}
