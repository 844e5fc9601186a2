package deployments

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/identity/issuer"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/vcs"
	"workflowagent/internal/workflow"
)

// IdentityToken issues an identity token to the runner of a job that may continue. Without an
// audience, the token is for the organization. It returns an [*issuer.LimitError] if the job has
// requested too many tokens.
func (s *Service) IdentityToken(ctx context.Context, p identity.Principal, jobID, audience string) (issuer.Token, error) {
	if s.opts.Issuer == nil {
		return issuer.Token{}, fault.NotFound("this server issues no identity tokens")
	}
	if err := s.opts.Issuer.Admit(p.JobID); err != nil {
		return issuer.Token{}, err
	}
	return s.issue(ctx, audience, func(tx *store.Tx) (store.Job, error) {
		job, err := callback(tx, p, jobID)
		if err == nil {
			err = s.mayContinue(tx, job, tx.Now())
		}
		return job, err
	})
}

// firstIdentityToken returns the identity token that is delivered with a claim, or "" if the server
// cannot issue one. A claim is also useful without it.
func (s *Service) firstIdentityToken(ctx context.Context, job store.Job) string {
	if s.opts.Issuer == nil {
		return ""
	}
	token, err := s.issue(ctx, "", func(*store.Tx) (store.Job, error) { return job, nil })
	if err != nil && ctx.Err() == nil && fault.KindOf(err) != fault.KindUnavailable { // a new server has no key for a moment
		s.log.WithError(err).WithField("job_id", job.ID).Warn("issuing a job's first identity token failed; its runner requests another one")
	}
	return token.Text // "" after an error
}

// issue issues a token for the job that find returns.
func (s *Service) issue(ctx context.Context, audience string, find func(*store.Tx) (store.Job, error)) (issuer.Token, error) {
	var job store.Job
	draft, err := store.Read(ctx, s.db, func(tx *store.Tx) (draft issuer.Draft, err error) {
		if job, err = find(tx); err != nil {
			return draft, err
		}
		d, err := tx.Deployment(job.DeploymentID)
		if err != nil {
			return draft, err
		}
		org, err := tx.Organization(d.OrgID)
		if err != nil {
			return draft, err
		}
		c, err := storedCheckout(tx, d.ID)
		if err != nil {
			return draft, err
		}
		sub, err := subject(d, org, c)
		if err != nil {
			return draft, err
		}
		return s.opts.Issuer.Draft(tx, sub, audience)
	})
	if err != nil {
		return issuer.Token{}, err
	}
	return s.sign(ctx, draft, job)
}

func (s *Service) sign(ctx context.Context, draft issuer.Draft, job store.Job) (issuer.Token, error) {
	token, err := s.opts.Issuer.Sign(ctx, draft)
	if err != nil {
		return issuer.Token{}, err
	}
	s.log.WithFields(logrus.Fields{
		"job_id": job.ID, "deployment_id": job.DeploymentID, "audience": token.Audience, "jti": token.ID,
	}).Debug("issued an identity token")
	return token, nil
}

// subject returns the description of a deployment in identity tokens. The checkout c is zero if the
// deployment has none.
func subject(d store.Deployment, org store.Organization, c store.VCSCheckout) (issuer.Subject, error) {
	set, err := workflow.ParseSettings([]byte(d.Configuration))
	if err != nil {
		return issuer.Subject{}, err
	}
	sub := issuer.Subject{
		Organization: org.Name, Project: d.Project, Stack: d.Stack, StackID: d.StackID,
		Operation: effect(d.Operation, set.Option()), Version: d.Version, Trigger: d.Initiator,
	}
	if g := set.Git(); g != nil {
		sub.Ref, sub.SHA = requestedRef(g), strings.ToLower(g.Commit)
		sub.PullRequest = pullRequest(sub.Ref)
		sub.Fork = sub.PullRequest != ""
	}
	if c.Pull > 0 || sub.Ref == "" {
		sub.Ref = c.Ref
	}
	if c.Pull > 0 {
		sub.PullRequest, sub.Fork = strconv.FormatInt(c.Pull, 10), c.Fork
	}
	return sub, nil
}

// effect returns the operation whose rights an operation needs. Identity tokens name only the four
// operations that conditions in existing trust policies name.
func effect(op workflow.Operation, o workflow.Options) string {
	switch {
	case op == workflow.OperationRemediateDrift, op == workflow.OperationDetectDrift && o.RemediateIfDriftDetected:
		op = workflow.OperationUpdate
	case op == workflow.OperationDetectDrift:
		op = workflow.OperationRefresh
	}
	return string(op)
}

// requestedRef returns the full name of the ref that the settings request, or "" if they request a
// commit or the default branch. As for the job, a tag only counts without a commit and a branch.
// Otherwise, a user could claim a trusted tag for other code.
func requestedRef(g *workflow.SourceContextGit) string {
	switch {
	case g.Commit != "":
		return ""
	case strings.HasPrefix(g.Branch, "refs/"):
		return g.Branch
	case g.Branch != "":
		return vcs.BranchPrefix + g.Branch
	case g.Tag != "":
		return vcs.TagPrefix + g.Tag
	default:
		return ""
	}
}

// pullRequestRef matches the refs of pull requests on GitHub, Gitea, Azure DevOps, Bitbucket and
// GitLab.
var pullRequestRef = regexp.MustCompile(`^refs/(?:pull|pull-requests|merge-requests)/([0-9]+)(?:/|$)`)

// pullRequest returns the number of the pull request to which a ref belongs, or "".
func pullRequest(ref string) string {
	if m := pullRequestRef.FindStringSubmatch(ref); m != nil {
		return m[1]
	}
	return ""
}

// sessionName returns the values of the placeholders in the names of cloud sessions.
func sessionName(d store.Deployment, org string) workflow.SessionName {
	return workflow.SessionName{
		Organization: org, Project: d.Project, Stack: d.Stack, Operation: d.Operation, Version: d.Version, DeploymentID: d.ID,
	}
}
