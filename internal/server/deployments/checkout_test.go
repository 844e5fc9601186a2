package deployments_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/deployments"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/identity/keyring"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/workflow"
)

const commit = "1234567890123456789012345678901234567890"

// forge is an integration that contains the repository o/r.
type forge struct {
	minted    int
	err       error
	life      time.Duration
	unwatched bool
}

func (f *forge) Watch(*store.Tx, identity.Principal, store.Stack, *workflow.Settings) error {
	return nil
}

func (f *forge) Bound(*store.Tx, string) (integrations.Bound, bool, error) {
	return integrations.Bound{Watch: store.VCSWatch{IntegrationID: "int", RepoID: "repo", Name: "o/r"}, Provider: "github", CloneURL: "https://git.example/o/r.git"}, !f.unwatched, nil
}

func (f *forge) CloneAuth(_ context.Context, integration, repo, name string) (vcs.Credential, error) {
	f.minted++
	c := vcs.Credential{UserName: "x-access-token", Password: "minted-token-1", Environment: map[string]string{"GITHUB_TOKEN": "minted-token-1"}}
	if f.life != 0 {
		c.Expires = time.Now().Add(f.life)
	}
	if integration != "int" || repo != "repo" || name != "o/r" {
		return c, errors.New("another repository")
	}
	return c, f.err
}

// newForgePlant returns a plant whose stack "dev" takes its program from the repository.
func newForgePlant(t *testing.T, db *store.DB, f *forge, settings string) (*plant, store.Stack) {
	t.Helper()
	secrets, err := keyring.Open(t.Context(), db, bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	tokens := issuer.New(db, issuer.Options{Log: storetest.Log(), Secrets: secrets, URL: "https://server.test/oidc"})
	if err := tokens.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := newPlant(t, db, deployments.Options{Repositories: f, Issuer: tokens})
	st := p.stack("dev")
	_, err = p.service.ReplaceSettings(t.Context(), p.user, st, []byte(settings), "test")
	p.must(err)
	return p, st
}

func (p *plant) createFor(st store.Stack, tr deployments.Trigger) store.Deployment {
	p.t.Helper()
	var d store.Deployment
	p.must(p.db.Write(p.t.Context(), scope.Server(), func(tx *store.Tx) (err error) {
		d, err = p.service.CreateTriggered(p.t.Context(), tx, st, tr)
		return err
	}))
	return d
}

func preview(pull int64) deployments.Trigger {
	return deployments.Trigger{
		Operation: workflow.OperationPreview, Initiator: vcs.InitiatorPull, Requester: "mallory", Group: "pull/" + string(rune('0'+pull)),
		Checkout: store.VCSCheckout{CommitID: commit, Ref: "refs/pull/7/head", Branch: "feature", Pull: pull, Fork: true},
	}
}

const bySettings = `{"vcs":{"provider":"github","repository":"o/r","previewPullRequests":true},"sourceContext":{"git":{"branch":"main"}},
	"operationContext":{"options":{"skipIntermediateDeployments":true}}}`

func TestDeploymentOfCommit(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		f := &forge{}
		p, st := newForgePlant(t, db, f, bySettings)
		d := p.createFor(st, preview(7))
		if d.RequestedBy != "" || d.Requester != "mallory" || d.Initiator != "pull-request" {
			t.Errorf("deployment %+v", d)
		}
		c := p.poll("a")
		p.must(p.heartbeat(c, "starting"))
		def, err := p.service.Definition(t.Context(), runner(c), c.Job.ID)
		p.must(err)
		src := def.Deployment.Source.Git
		if src.RepoURL != "https://git.example/o/r.git" || src.Commit != commit || src.Branch != "refs/pull/7/head" ||
			*src.Auth != (workflow.GitAuth{UserName: "x-access-token", Password: "minted-token-1"}) {
			t.Errorf("source %+v, credentials %+v", src, src.Auth)
		}
		for name, want := range map[string]string{
			"PULUMI_CI_BRANCH_NAME": "feature", "PULUMI_PR_NUMBER": "7", "PULUMI_CI_PULL_REQUEST_SHA": commit, "GITHUB_TOKEN": "minted-token-1", "PULUMI_CI_TAG_NAME": "",
		} {
			if def.Env[name] != want {
				t.Errorf("%s = %q, want %q", name, def.Env[name], want)
			}
		}
		masked := map[string]bool{}
		for _, s := range def.Secrets() {
			masked[s.Name] = true
		}
		if !masked["GITHUB_TOKEN"] || !masked["the git password"] {
			t.Errorf("the log masks only %v", masked)
		}
		known, err := p.service.KnownSecrets(t.Context(), d.ID)
		p.must(err)
		found := false
		for _, s := range known {
			found = found || s.Value == "minted-token-1"
		}
		if !found {
			t.Error("the credential is not masked in what the job reports")
		}
		if _, err := p.service.Definition(t.Context(), runner(c), c.Job.ID); err != nil || f.minted != 1 {
			t.Errorf("another request of the definition: %d credentials, %v", f.minted, err)
		}
		ids := identity.New(db, storetest.Log())
		job, err := ids.Authenticate(t.Context(), def.Env["PULUMI_ACCESS_TOKEN"])
		p.must(err)
		other := p.stack("other")
		for what, wrong := range map[string]bool{
			"writes its stack": job.Can(st, identity.Write), "starts deployments": job.Can(st, identity.Operate), "reads another stack": job.Can(other, identity.Outputs|identity.StateRead|identity.Decrypt),
		} {
			if wrong {
				t.Errorf("the token of the preview %s", what)
			}
		}
		if got, want := p.claims(c), (claims{"pull-request", "refs/pull/7/head", commit, "7", true}); got != want {
			t.Errorf("claims %+v, want %+v", got, want)
		}
	})
}

// claims are the claims of an identity token that depend on a deployment's checkout.
type claims struct {
	Trigger, Ref, SHA string
	Pull              string `json:"pull_request"`
	Fork              bool
}

// claims requests an identity token.
func (p *plant) claims(c *deployments.Claim) (out claims) {
	p.t.Helper()
	token, err := p.service.IdentityToken(p.t.Context(), runner(c), c.Job.ID, "")
	p.must(err)
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token.Text, ".")[1])
	p.must(err)
	p.must(json.Unmarshal(payload, &out))
	return out
}

// TestPullRequestAgain checks that a user who runs the deployment of a pull request again lends it no
// rights: a fork's commit remains one in its identity token.
func TestPullRequestAgain(t *testing.T) {
	for name, watches := range map[string]bool{"watched": true, "not watched any more": false} {
		t.Run(name, func(t *testing.T) {
			f := &forge{}
			p, st := newForgePlant(t, storetest.SQLite(t), f, bySettings)
			first := p.createFor(st, preview(7))
			c := p.poll("a")
			p.must(p.heartbeat(c, "starting"))
			p.must(p.result(c, workflow.StatusFailed))
			f.unwatched = !watches
			again, err := p.again(st, first.ID)
			p.must(err)
			if again.RequestedBy != "" || again.Requester != p.user.Name() {
				t.Errorf("the deployment is requested by %q and acts for %q", again.Requester, again.RequestedBy)
			}
			if group := p.job(again.ID).QueueGroup; group != "pull/7" {
				t.Errorf("the deployment is in the group %q", group)
			}
			c = p.poll("a")
			p.must(p.heartbeat(c, "starting"))
			def, err := p.service.Definition(t.Context(), runner(c), c.Job.ID)
			p.must(err)
			if got := def.Deployment.Source.Git.Auth != nil; got != watches {
				t.Errorf("the job gets a credential: %t, want %t", got, watches)
			}
			if got, want := p.claims(c), (claims{deployments.InitiatorConsole, "refs/pull/7/head", commit, "7", true}); got != want {
				t.Errorf("claims %+v, want %+v", got, want)
			}
		})
	}
}

func TestCredentialIsReplacedBeforeItExpires(t *testing.T) {
	f := &forge{life: 10 * time.Minute}
	p, st := newForgePlant(t, storetest.SQLite(t), f, bySettings)
	p.createFor(st, preview(7))
	c := p.poll("a")
	p.must(p.heartbeat(c, "starting"))
	f.err = errors.New("no answer")
	if _, err := p.service.Definition(t.Context(), runner(c), c.Job.ID); fault.KindOf(err) != fault.KindUnavailable {
		t.Fatalf("without a credential: %v", err)
	}
	for _, f.err = range []error{fault.NotFound("no integration"), fault.Forbidden("not in the list")} {
		if _, err := p.service.Definition(t.Context(), runner(c), c.Job.ID); fault.KindOf(err) != fault.KindInvalid {
			t.Fatalf("with a credential that there can never be, the job does not fail: %v", err)
		}
	}
	f.minted, f.err = 1, nil
	for range 2 {
		_, err := p.service.Definition(t.Context(), runner(c), c.Job.ID)
		p.must(err)
	}
	if f.minted != 3 {
		t.Errorf("requested %d credentials, want a new one each time", f.minted)
	}
}

// TestCredentialsStayWithTheirRepository checks which deployments get a credential of the integration.
func TestCredentialsStayWithTheirRepository(t *testing.T) {
	const own = `{"vcs":{"provider":"github","repository":"o/r"},"sourceContext":{"git":{"branch":"main","repoUrl":"git@git.example:o/r.git","gitAuth":{"accessToken":{"secret":"mine"}}}}}`
	for name, tt := range map[string]struct {
		settings, request, url, token string
	}{
		"the watched repository":          {bySettings, `{"operation":"update"}`, "https://git.example/o/r.git", "minted-token-1"},
		"another repository":              {bySettings, `{"operation":"update","sourceContext":{"git":{"repoUrl":"https://evil.example/o/r.git"}}}`, "https://evil.example/o/r.git", ""},
		"another repository by name":      {bySettings, `{"operation":"update","vcs":{"provider":"github","repository":"o/x"}}`, "https://github.com/o/x.git", ""},
		"another provider":                {bySettings, `{"operation":"update","vcs":{"provider":"gitlab","repository":"o/r"}}`, "https://gitlab.com/o/r.git", ""},
		"own credentials":                 {own, `{"operation":"update"}`, "git@git.example:o/r.git", "mine"},
		"own credentials, other name":     {own, `{"operation":"update","vcs":{"provider":"github","repository":"o/x"}}`, "git@git.example:o/r.git", ""},
		"own credentials, other address":  {own, `{"operation":"update","sourceContext":{"git":{"repoUrl":"https://evil.example/o/r.git"}}}`, "https://evil.example/o/r.git", ""},
		"without the settings of a stack": {bySettings, `{"operation":"update","inheritSettings":false,"vcs":{"provider":"github","repository":"o/r"}}`, "https://github.com/o/r.git", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, st := newForgePlant(t, storetest.SQLite(t), &forge{}, tt.settings)
			_, err := p.service.Create(t.Context(), p.user, st, asked(t, tt.request), "api")
			p.must(err)
			c := p.poll("a")
			p.must(p.heartbeat(c, "starting"))
			def, err := p.service.Definition(t.Context(), runner(c), c.Job.ID)
			p.must(err)
			src := def.Deployment.Source.Git
			token := ""
			if src.Auth != nil {
				token = src.Auth.Password + src.Auth.AccessToken
			}
			if src.RepoURL != tt.url || token != tt.token {
				t.Errorf("clones %s with %q, want %s with %q", src.RepoURL, token, tt.url, tt.token)
			}
		})
	}
}

// TestEventsSendNoCredentialElsewhere checks deployments by events of stacks whose settings take the
// program from another server than that of the repository that changed.
func TestEventsSendNoCredentialElsewhere(t *testing.T) {
	const elsewhere = `{"vcs":{"provider":"github","repository":"o/r","previewPullRequests":true},"sourceContext":{"git":{"branch":"main","repoUrl":"https://evil.example/o/r.git"%s}}}`
	for name, tt := range map[string]struct {
		auth, token string
		ok          bool
	}{
		"without credentials": {"", "", false},
		"own credentials":     {`,"gitAuth":{"accessToken":{"secret":"mine"}}`, "mine", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &forge{}
			p, st := newForgePlant(t, storetest.SQLite(t), f, fmt.Sprintf(elsewhere, tt.auth))
			tr := preview(7)
			tr.Checkout.IntegrationID, tr.Checkout.RepoID = "int", "repo"
			err := p.db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
				err := tx.InsertIntegration(store.VCSIntegration{ID: "int", OrgID: st.OrgID, Provider: vcs.ProviderGitHub, Name: "forge", Options: "{}"})
				err2 := tx.InsertRepo(store.VCSRepo{ID: "repo", IntegrationID: "int", RemoteID: "17", Name: "o/r", CloneURL: "https://git.example/o/r.git"})
				_, err3 := p.service.CreateTriggered(t.Context(), tx, st, tr)
				return errors.Join(err, err2, err3)
			})
			if !tt.ok {
				if fault.KindOf(err) != fault.KindInvalid {
					t.Errorf("got %v", err)
				}
				return
			}
			p.must(err)
			c := p.poll("a")
			p.must(p.heartbeat(c, "starting"))
			def, err := p.service.Definition(t.Context(), runner(c), c.Job.ID)
			p.must(err)
			if src := def.Deployment.Source.Git; src.Auth.AccessToken+src.Auth.Password != tt.token || f.minted != 0 {
				t.Errorf("clones %s with %+v, %d credentials of the integration", src.RepoURL, src.Auth, f.minted)
			}
		})
	}
}

func TestQueueGroups(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		p, st := newForgePlant(t, db, &forge{}, bySettings)
		running := p.deploy(st)
		c := p.poll("a")
		first, other, second := p.createFor(st, preview(7)), p.createFor(st, preview(8)), p.createFor(st, preview(7))
		p.must(p.heartbeat(c, "starting"))
		p.must(p.result(c, workflow.StatusSucceeded))
		p.eventually("the end of the first deployment", func() bool { return p.job(running).Status == workflow.StatusSucceeded })
		// Row 51: pull requests do not skip each other's previews.
		for id, want := range map[string]workflow.Status{first.ID: workflow.StatusSkipped, second.ID: workflow.StatusNotStarted, other.ID: workflow.StatusNotStarted} {
			if got := p.job(id).Status; got != want {
				t.Errorf("deployment %s is %s, want %s", id, got, want)
			}
		}
		p.must(db.Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
			n, err := p.service.SkipQueued(tx, st.ID, "pull/7", workflow.OperationPreview, "closed")
			if n != 1 {
				t.Errorf("skipped %d deployments, want 1", n)
			}
			return err
		}))
		if p.job(second.ID).Status != workflow.StatusSkipped || p.job(other.ID).Status != workflow.StatusNotStarted {
			t.Error("skipped the wrong deployments")
		}
	})
}
