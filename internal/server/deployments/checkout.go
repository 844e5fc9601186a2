package deployments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/server/vcs/integrations"
	"workflowagent/internal/termtext"
	"workflowagent/internal/workflow"
)

// repositories knows the repositories of integrations.
type repositories interface {
	// Watch makes a stack watch the repository in its settings, on behalf of p.
	Watch(tx *store.Tx, p identity.Principal, st store.Stack, set *workflow.Settings) error
	// Bound returns the repository that a stack watches.
	Bound(tx *store.Tx, stackID string) (b integrations.Bound, ok bool, err error)
	// CloneAuth returns a credential for a repository.
	CloneAuth(ctx context.Context, integrationID, repoID, name string) (vcs.Credential, error)
}

// bound returns b, the repository that a stack watches, or nil if the request names another one. It
// sets the repository's address in base, the stack's settings, so that their credentials are used
// only for that address.
func (s *Service) bound(ctx context.Context, tx *store.Tx, st store.Stack, b *integrations.Bound, base *workflow.Settings, r workflow.Request) (*integrations.Bound, error) {
	if b == nil {
		return nil, nil
	}
	requested, err := r.Own()
	if err != nil {
		return nil, fault.Invalid("%s", err)
	}
	if t, ok := requested.Triggers(); ok && !b.Same(t) {
		base.DropCredentials()
		return nil, nil
	}
	if err := s.open(ctx, tx, st.ID, base); err != nil {
		return nil, err
	}
	base.SetRepository(b.CloneURL)
	return b, s.seal(ctx, tx, st.ID, base)
}

// repositoryOf returns the repository that a stack watches if its settings, which can be nil, take the
// program from it.
func (s *Service) repositoryOf(tx *store.Tx, st store.Stack, stored *workflow.Settings) (*integrations.Bound, error) {
	if s.opts.Repositories == nil || stored == nil {
		return nil, nil
	}
	b, ok, err := s.opts.Repositories.Bound(tx, st.ID)
	if err != nil || !ok {
		return nil, err
	}
	if t, ok := stored.Triggers(); !ok || !b.Same(t) || !b.From(stored) {
		return nil, nil
	}
	return &b, nil
}

// checkoutOf returns what a deployment checks out from the repository that its stack watches, or nil
// if it uses another source.
func checkoutOf(b *integrations.Bound, set *workflow.Settings) *store.VCSCheckout {
	if b == nil || set.Git() == nil || set.Git().RepoURL != b.CloneURL && set.Git().GitAuth == nil {
		return nil
	}
	g := set.Git()
	return &store.VCSCheckout{
		IntegrationID: b.Watch.IntegrationID, RepoID: b.Watch.RepoID, CommitID: strings.ToLower(g.Commit), Ref: requestedRef(g),
	}
}

// Trigger is a change in a repository that causes a deployment of a stack.
type Trigger struct {
	Operation workflow.Operation
	Initiator string // such as [vcs.InitiatorPush]
	// Requester is the forge's account, for display only: it grants nothing.
	Requester string
	// Checkout is what the deployment checks out.
	Checkout store.VCSCheckout
	// Group separates deployments that must not supersede each other; see [store.Job].
	Group string
	// Pool is the agent pool, or "" for that of the settings.
	Pool string
	// DeleteAfterDestroy removes the stack after it was destroyed.
	DeleteAfterDestroy bool
}

// CreateTriggered queues a deployment for a change in a repository, in the caller's transaction, which
// must hold the stack. The deployment acts for no user: its job reaches only its own stack. If
// CreateTriggered returns an error with a [fault.Kind], it has changed nothing, and the caller may commit.
func (s *Service) CreateTriggered(ctx context.Context, tx *store.Tx, st store.Stack, t Trigger) (store.Deployment, error) {
	asked := &workflow.Settings{AgentPoolID: t.Pool}
	if t.Checkout.CommitID != "" {
		asked.SourceContext = &workflow.SourceContext{Git: &workflow.SourceContextGit{Commit: t.Checkout.CommitID}}
	} else if t.Checkout.Ref != "" {
		asked.SourceContext = &workflow.SourceContext{Git: &workflow.SourceContextGit{Branch: t.Checkout.Ref}}
	}
	if t.DeleteAfterDestroy {
		asked.OperationContext = &workflow.OperationContext{Options: &workflow.OptionsSettings{DeleteAfterDestroy: &t.DeleteAfterDestroy}}
	}
	set, from, checkout, err := s.configure(ctx, tx, st, workflow.Request{Operation: t.Operation, Inherit: true, Settings: asked}, nil)
	if err != nil {
		return store.Deployment{}, err
	}
	if g := set.Git(); g != nil {
		g.Tag = strings.TrimPrefix(t.Checkout.Ref, vcs.TagPrefix)
		if g.Tag == t.Checkout.Ref {
			g.Tag = ""
		}
	}
	if checkout != nil {
		t.Checkout.IntegrationID, t.Checkout.RepoID = checkout.IntegrationID, checkout.RepoID
	} else if err := checkServer(tx, set, t.Checkout.RepoID); err != nil {
		return store.Deployment{}, err
	}
	d := store.Deployment{
		Operation: t.Operation, Initiator: t.Initiator, Requester: termtext.OneLine(t.Requester, maxMessage), InheritSettings: true,
	}
	if checkout != nil || t.Checkout.Pull > 0 {
		d.Trust = string(from.trust(&t.Checkout))
	}
	return s.add(ctx, tx, st, d, set, queueing{checkout: &t.Checkout, group: t.Group}, audit.Actor{Kind: audit.ActorForge, Name: d.Requester})
}

// checkServer returns an error if a deployment would send the credential for a repository to another
// server, because the settings take the program from there.
func checkServer(tx *store.Tx, set *workflow.Settings, repoID string) error {
	g := set.Git()
	if g == nil || g.GitAuth != nil || repoID == "" {
		return nil
	}
	r, err := tx.Repo(repoID)
	if errors.Is(err, store.ErrNotFound) {
		return nil // no credential can be requested
	}
	if err != nil {
		return err
	}
	from, err1 := workflow.ParseRepository(g.RepoURL)
	changed, err2 := workflow.ParseRepository(r.CloneURL)
	if err1 == nil && err2 == nil && from.Origin() == changed.Origin() {
		return nil
	}
	return fault.Invalid("sourceContext.git.repoUrl is on another server than the repository %s, whose credential is not for that server: remove repoUrl, or add gitAuth", r.Name)
}

// SkipQueued skips the queued deployments of a group of a stack, because of a change in a repository. The
// caller's transaction must hold the stack.
func (s *Service) SkipQueued(tx *store.Tx, stackID, group string, op workflow.Operation, text string) (skipped int, err error) {
	queued, err := tx.QueuedJobsOfStack(stackID)
	if err != nil {
		return 0, err
	}
	for _, j := range queued {
		if j.QueueGroup != group || j.Operation != op {
			continue
		}
		if err := s.skip(tx, j, workflow.ReasonSuperseded, text, tx.Now()); err != nil {
			return skipped, err
		}
		skipped++
	}
	return skipped, nil
}

// openCheckout is a checkout with its decrypted credential. The zero value changes no definition.
type openCheckout struct {
	store.VCSCheckout
	credential *vcs.Credential // nil if the settings contain one
}

// minLife is the time for which a credential must be valid when a runner receives it.
const minLife = 20 * time.Minute

// storedCheckout returns the checkout of a deployment, or the zero value if it has none.
func storedCheckout(tx *store.Tx, deploymentID string) (store.VCSCheckout, error) {
	c, err := tx.Checkout(deploymentID)
	if errors.Is(err, store.ErrNotFound) {
		return store.VCSCheckout{}, nil
	}
	return c, fault.While(err, "reading a deployment's checkout")
}

// openCheckout decrypts the credential of a deployment's checkout from [storedCheckout]. If request is
// set, it requests a credential for the job unless the stored one is valid for long enough; otherwise it
// returns the stored one.
func (s *Service) openCheckout(ctx context.Context, d store.Deployment, c store.VCSCheckout, set *workflow.Settings, request bool) (openCheckout, error) {
	if s.opts.Repositories == nil || c.DeploymentID == "" {
		return openCheckout{}, nil
	}
	o := openCheckout{VCSCheckout: c}
	name := ""
	if t, ok := set.Triggers(); ok {
		name = t.Repository
	}
	if g := set.Git(); o.IntegrationID == "" || g == nil || g.GitAuth != nil {
		return o, nil
	}
	o.credential = &vcs.Credential{}
	valid := o.ExpiresAt.IsZero() || time.Until(o.ExpiresAt) > minLife
	if len(o.Credential) > 0 && (valid || !request) {
		plain, err := s.opts.Secrets.Decrypt(ctx, sealedFor(o.DeploymentID), o.Credential)
		if err == nil {
			err = json.Unmarshal(plain, o.credential)
		}
		return o, fault.While(err, "decrypting the credential of a deployment's repository")
	}
	if !request {
		return o, nil
	}
	return o, s.requestCredential(ctx, d, &o, name)
}

// requestCredential requests the credential of a checkout, and stores it, because it must be masked
// in what the job reports. If there can be none, the error has the kind [fault.KindInvalid].
func (s *Service) requestCredential(ctx context.Context, d store.Deployment, o *openCheckout, name string) error {
	c, err := s.opts.Repositories.CloneAuth(ctx, o.IntegrationID, o.RepoID, name)
	switch kind := fault.KindOf(err); {
	case err == nil:
	case kind == "":
		return fault.Wrap(fault.KindUnavailable, err, "the credential for the repository could not be obtained: %s", termtext.OneLine(err.Error(), maxMessage))
	case kind == fault.KindUnavailable, kind == fault.KindOutcomeUnknown:
		return err
	default:
		// Agents drop jobs whose definition is forbidden or missing, because other agents run
		// them. This job must fail instead.
		return fault.Wrap(fault.KindInvalid, err, "no credential for the repository: %s", termtext.OneLine(err.Error(), maxMessage))
	}
	plain, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encoding a credential: %w", err)
	}
	if o.Credential, err = s.opts.Secrets.Encrypt(ctx, sealedFor(o.DeploymentID), plain); err != nil {
		return fmt.Errorf("encrypting a credential: %w", err)
	}
	o.credential, o.ExpiresAt = &c, c.Expires
	return s.db.Write(ctx, scope.Stack(d.OrgID, d.StackID), func(tx *store.Tx) error { return tx.SaveCheckout(o.VCSCheckout) })
}

// environment adds the variables that describe the change to a definition.
func (o openCheckout) environment(def *workflow.JobDefinition) {
	put := func(name, value string) {
		if value != "" {
			def.Env[name] = value
		}
	}
	put("PULUMI_CI_BRANCH_NAME", o.Branch)
	if tag, ok := strings.CutPrefix(o.Ref, vcs.TagPrefix); ok {
		put("PULUMI_CI_TAG_NAME", tag)
	}
	if o.Pull > 0 {
		put("PULUMI_PR_NUMBER", strconv.FormatInt(o.Pull, 10))
		put("PULUMI_CI_PULL_REQUEST_SHA", o.CommitID)
	}
	if o.credential == nil {
		return
	}
	for name, value := range o.credential.Environment {
		put(name, value)
		def.SecretEnv = append(def.SecretEnv, name)
	}
}

// source adds the credential to a definition's source, and the ref from which its commit can be
// fetched.
func (o openCheckout) source(src *workflow.Source) {
	if src == nil || src.Git == nil {
		return
	}
	if o.CommitID != "" && src.Git.Commit == o.CommitID {
		src.Git.Branch = o.Ref
	}
	c := o.credential
	if c == nil || c.Password == "" && c.SSHPrivateKey == "" {
		return // a public repository
	}
	auth := &workflow.GitAuth{UserName: c.UserName, Password: c.Password, SSHPrivateKey: normalizeKey(c.SSHPrivateKey), SSHPassphrase: c.SSHPassphrase}
	if auth.UserName == "" {
		auth.AccessToken, auth.Password = auth.Password, ""
	}
	src.Git.Auth = auth
}
