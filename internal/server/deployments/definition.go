package deployments

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/redact"
	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/stacks"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// Definition returns the definition of a claimed job. Only this method decrypts the secrets of a
// job for its runner. If the agent uses only the stock API, fetching the definition starts the job.
func (s *Service) Definition(ctx context.Context, p identity.Principal, jobID string) (*workflow.JobDefinition, error) {
	token, hash := identity.NewToken()
	var d store.Deployment
	var org store.Organization
	var set *workflow.Settings
	var checkout store.VCSCheckout
	platform, generation, skipCheckpoints, opens := "", int64(0), false, int64(0)
	err := s.onJob(ctx, p, jobID, func(tx *store.Tx, job *store.Job, now time.Time) (err error) {
		if job.Status.Final() {
			return ended(*job) // a lost job that still runs already has its definition
		}
		if job.Stock && job.Status == workflow.StatusAccepted {
			if err := s.leave(tx, job, now); err != nil {
				return err
			}
		}
		job.LastSeenAt = now
		if d, err = tx.Deployment(job.DeploymentID); err != nil {
			return err
		}
		platform = job.AgentPlatform
		if platform == "" { // the claim was stored by a server of an earlier version, for example
			agent, err := tx.Agent(job.PoolID, job.AgentID)
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return err
			}
			platform = agent.Platform
		}
		if org, err = tx.Organization(d.OrgID); err != nil {
			return err
		}
		stack, err := tx.Stack(job.StackID)
		if err != nil {
			return err
		}
		skipCheckpoints = stacks.SkipCheckpoints(stack)
		if set, err = workflow.ParseSettings([]byte(d.Configuration)); err != nil {
			return err
		}
		if checkout, err = storedCheckout(tx, d.ID); err != nil {
			return err
		}
		requester, err := tx.KnownRequester(d.ID)
		if err != nil {
			return err
		}
		if d.RequestedBy != "" && !requester {
			text := termtext.OneLine(d.Requester+", who requested this deployment, is no longer a member of the organization: the deployment reads outputs of other stacks, and opens environments, only through grants", maxMessage)
			noteOnce(job, now, text)
		}
		if n := len(set.PostRunCommands()); n > 0 && job.Stock && len(job.Steps) > len(set.Plan(d.Operation)) {
			job.Steps = job.Steps[:len(job.Steps)-n] // the job ends when all steps have succeeded
			noteOnce(job, now, "The post-run commands do not run, because only agents of this server support them")
		}
		queue, err := tx.StackQueue(d.StackID)
		if err != nil {
			return err
		}
		generation = queue.CacheGeneration
		if opens, err = tx.CountEnvironments(org.ID); err != nil {
			return err
		}
		if err := tx.SaveJob(*job); err != nil {
			return err
		}
		if sendsSecrets(set, checkout) {
			err := audit.RecordRead(ctx, tx, audit.Read{
				OrgID: job.OrgID, Action: audit.SecretsSent, DeploymentID: d.ID,
				Subject: audit.Stack(store.Stack{ID: job.StackID, OrgName: org.Name, Project: d.Project, Name: d.Stack}),
				Detail:  map[string]any{"deployment": d.ID, "version": d.Version, "agent": job.AgentID},
			})
			if err != nil {
				return err
			}
		}
		scope := identity.JobScope(job.StackID, d.Operation, set.Option(), requester)
		if d.Trust != store.TrustNone {
			scope = scope.WithConfiguration(d.Trust == store.TrustOwn)
		}
		if review, err := tx.ReviewStackOf(job.StackID); err == nil {
			scope = scope.WithTemplate(review.TemplateID)
		} else if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		return tx.InsertToken(store.Token{
			ID: identity.NewID(), Hash: hash, Kind: store.JobToken, Name: "deployment #" + strconv.FormatInt(d.Version, 10),
			OrgID: job.OrgID, PoolID: job.PoolID, JobID: job.ID, Epoch: job.Epoch, DeploymentID: job.DeploymentID,
			StackID: job.StackID, UserID: d.RequestedBy, CreatedBy: d.RequestedBy, CreatedAt: now,
			Scope: scope.As(set.Role()).String(),
		})
	})
	if err != nil {
		return nil, err
	}
	repo, err := s.openCheckout(ctx, d, checkout, set, true)
	if err != nil {
		return nil, err
	}
	def, err := s.define(ctx, d, org.Name, set, repo, token, platform)
	if err != nil {
		return nil, err
	}
	def.Deployment.SkipCheckpoints, def.Deployment.PulumiVersion = skipCheckpoints, set.PulumiVersion(org.PulumiVersion)
	def.Deployment.OpensEnvironments = opens > 0 || len(set.Environments()) > 0
	def.Deployment.Workspace, err = workspaceOf(d, set, def.Image.Reference, generation)
	return def, err
}

// sendsSecrets reports whether a definition contains more secrets than the job's own token.
func sendsSecrets(set *workflow.Settings, checkout store.VCSCheckout) bool {
	found := checkout.IntegrationID != "" && set.Git() != nil // its credential
	_ = set.EachSecret(func(_ string, v *workflow.Secret) error {
		found = found || v.IsSecret()
		return nil
	})
	return found
}

// noteOnce adds a note to a job, whose agent can request the definition again.
func noteOnce(job *store.Job, now time.Time, text string) {
	if !slices.ContainsFunc(job.Notes, func(n store.Note) bool { return n.Text == text }) {
		addNote(job, now, text)
	}
}

func (s *Service) define(ctx context.Context, d store.Deployment, org string, set *workflow.Settings, repo openCheckout, token, platform string) (*workflow.JobDefinition, error) {
	if err := s.open(ctx, nil, d.StackID, set); err != nil {
		return nil, fmt.Errorf("decrypting the secrets of a deployment: %w", err)
	}
	opts := set.Option()
	def := &workflow.JobDefinition{
		OS: "linux", Architecture: Architecture(platform), Shell: opts.Shell, Steps: set.Plan(d.Operation),
		Env: s.environment(d, org, set, token), SecretEnv: []string{"PULUMI_ACCESS_TOKEN"},
		Deployment: &workflow.Deployment{
			ID: d.ID, Version: d.Version, Organization: org, Project: d.Project, Stack: d.Stack,
			Operation: d.Operation, BackendURL: s.opts.ExternalURL, Environments: set.Environments(), PreRunCommands: set.PreRunCommands(),
			PostRunCommands: set.PostRunCommands(), Options: opts, OIDC: set.OIDC().Render(sessionName(d, org)),
		},
	}
	def.Shell = cmp.Or(def.Shell, "bash")
	repo.environment(def)
	if c := set.OperationContext; c != nil {
		for name, v := range c.EnvironmentVariables {
			def.Env[name] = reveal(&v)
			if v.IsSecret() && !slices.Contains(def.SecretEnv, name) {
				def.SecretEnv = append(def.SecretEnv, name)
			}
		}
	}
	if e := set.ExecutorContext; e != nil {
		def.Deployment.RootPath = e.ExecutorRootPath
	}
	def.Image, def.Deployment.Source = s.image(set), source(set)
	repo.source(def.Deployment.Source)
	gitHubToken(def)
	slices.Sort(def.SecretEnv)
	return def, nil
}

// reveal returns a decrypted secret, or "" if it is not given.
func reveal(v *workflow.Secret) string {
	if v == nil {
		return ""
	}
	plain, _ := v.Value()
	return plain
}

// gitHubToken passes the token for a repository on GitHub to the job, as Pulumi documents it. The
// settings and the token of an integration take precedence.
func gitHubToken(def *workflow.JobDefinition) {
	const name = "GITHUB_TOKEN"
	src := def.Deployment.Source
	if _, given := def.Env[name]; given || src == nil || src.Git == nil || src.Git.Auth == nil {
		return
	}
	repo, err := workflow.ParseRepository(src.Git.RepoURL)
	if err != nil || repo.Scheme != "https" || repo.Host != "github.com" {
		return
	}
	// GitHub accepts tokens in place of passwords, and no passwords.
	if token := cmp.Or(src.Git.Auth.AccessToken, src.Git.Auth.Password); token != "" {
		def.Env[name] = token
		def.SecretEnv = append(def.SecretEnv, name)
	}
}

// Architecture returns the claiming agent's architecture. The default is amd64, which all agents
// support.
func Architecture(platform string) string {
	if _, arch, ok := strings.Cut(platform, "/"); ok && (arch == "arm64" || arch == "amd64") {
		return arch
	}
	return "amd64"
}

// environment returns the environment variables that every job has. Variables in the settings
// override them.
func (s *Service) environment(d store.Deployment, org string, set *workflow.Settings, token string) map[string]string {
	env := map[string]string{
		"PULUMI_ACCESS_TOKEN":    token,
		"PULUMI_BACKEND_URL":     s.opts.ExternalURL,
		"PULUMI_CONSOLE_DOMAIN":  s.opts.Console.Domain(),
		"PULUMI_SERVICE_URL":     s.opts.ExternalURL + "/api",
		"PULUMI_CI_SYSTEM":       "Pulumi Deployments",
		"PULUMI_CI_BUILD_ID":     d.ID,
		"PULUMI_CI_BUILD_NUMBER": strconv.FormatInt(d.Version, 10),
		"PULUMI_CI_BUILD_URL":    s.opts.Console.Deployment(org, d.Project, d.Stack, d.Version),
		"PULUMI_CI_ORGANIZATION": org,
		"PULUMI_CI_PROJECT":      d.Project,
		"PULUMI_CI_STACK":        d.Stack,
		"PULUMI_CI_OPERATION":    string(d.Operation),
	}
	if config := set.OIDC().Render(sessionName(d, org)); config != nil {
		if text, err := json.Marshal(config); err == nil { // never fails for strings
			env["PULUMI_DEPLOY_OIDC_CONFIG"] = string(text)
		}
	}
	if g := set.Git(); g != nil {
		if tag, ok := strings.CutPrefix(requestedRef(g), vcs.TagPrefix); ok {
			env["PULUMI_CI_TAG_NAME"] = tag
		}
	}
	return env
}

func (s *Service) image(set *workflow.Settings) *workflow.Image {
	img := &workflow.Image{Reference: s.opts.DefaultImage}
	if set.ExecutorContext == nil || set.ExecutorContext.ExecutorImage == nil {
		return img
	}
	want := set.ExecutorContext.ExecutorImage
	if want.IsDefault || want.Reference == "" {
		return img
	}
	img.Reference = want.Reference
	if c := want.Credentials; c != nil {
		// Files and copied text end with a newline, which no registry accepts.
		img.Credentials = &workflow.ImageCredentials{
			Username: strings.TrimSpace(c.Username), Password: strings.TrimRight(reveal(c.Password), "\r\n"),
		}
	}
	return img
}

func source(set *workflow.Settings) *workflow.Source {
	g := set.Git()
	if g == nil {
		return nil
	}
	src := &workflow.GitSource{
		RepoURL: g.RepoURL, Branch: g.Branch, Commit: g.Commit, RepoDir: strings.TrimLeft(g.RepoDir, "/"),
	}
	set.SetGitContents(src)
	if ref := requestedRef(g); strings.HasPrefix(ref, vcs.TagPrefix) {
		src.Branch = ref
	}
	if a := g.GitAuth; a != nil {
		src.Auth = &workflow.GitAuth{AccessToken: reveal(a.AccessToken)}
		if ssh := a.SSHAuth; ssh != nil {
			src.Auth.SSHPrivateKey, src.Auth.SSHPassphrase = normalizeKey(reveal(ssh.SSHPrivateKey)), reveal(ssh.Password)
		}
		if basic := a.BasicAuth; basic != nil {
			src.Auth.UserName, src.Auth.Password = reveal(basic.UserName), reveal(basic.Password)
		}
	}
	return &workflow.Source{Git: src}
}

// normalizeKey returns a private key in PEM form with a final newline. Its input can also be in
// base64, or lack that newline.
func normalizeKey(key string) string {
	if key == "" {
		return ""
	}
	if !strings.Contains(key, "-----BEGIN") {
		if raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(key)); err == nil && strings.Contains(string(raw), "-----BEGIN") {
			key = string(raw)
		}
	}
	return strings.TrimRight(strings.ReplaceAll(key, "\r\n", "\n"), "\n") + "\n"
}

// KnownSecrets returns a deployment's secrets, so that they can be masked in the output of the
// deployment's programs.
func (s *Service) KnownSecrets(ctx context.Context, deploymentID string) ([]redact.Secret, error) {
	var d store.Deployment
	var checkout store.VCSCheckout
	err := s.db.Read(ctx, func(tx *store.Tx) (err error) {
		if d, err = tx.Deployment(deploymentID); err != nil {
			return err
		}
		checkout, err = storedCheckout(tx, d.ID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("looking up a deployment: %w", err)
	}
	set, err := workflow.ParseSettings([]byte(d.Configuration))
	if err != nil {
		return nil, fmt.Errorf("parsing a deployment's settings: %w", err)
	}
	repo, err := s.openCheckout(ctx, d, checkout, set, false)
	if err != nil {
		return nil, err
	}
	def, err := s.define(ctx, d, "", set, repo, "", "")
	if err != nil {
		return nil, err
	}
	return redact.OfJob(def), nil
}

// Environments returns the names of the environments that a job opens for its steps.
func (s *Service) Environments(ctx context.Context, p identity.Principal, jobID string) ([]string, error) {
	d, err := store.Read(ctx, s.db, func(tx *store.Tx) (store.Deployment, error) {
		job, err := callback(tx, p, jobID)
		if err == nil {
			err = s.mayContinue(tx, job, tx.Now())
		}
		if err != nil {
			return store.Deployment{}, err
		}
		return tx.Deployment(job.DeploymentID)
	})
	if err != nil {
		return nil, fault.While(err, "looking up a job")
	}
	set, err := workflow.ParseSettings([]byte(d.Configuration))
	if err != nil {
		return nil, fmt.Errorf("parsing a deployment's settings: %w", err)
	}
	if len(set.Environments()) == 0 {
		return nil, fault.Invalid("the settings of this deployment name no environments")
	}
	return set.Environments(), nil
}
