// Package credentials gives a job's steps short-lived cloud credentials. The job proves its identity
// with a token of the server's OIDC issuer, which AWS, Azure or Google Cloud exchanges for
// credentials. The package keeps the token fresh for as long as the job's steps run
// (docs/cloud-credentials.md).
package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/protocol"
	"workflowagent/internal/redact"
	"workflowagent/internal/retry"
	"workflowagent/internal/sys/durable"
	"workflowagent/internal/workflow"
)

// The names of the variables and of the file that contain the identity token.
const (
	EnvToken     = "PULUMI_OIDC_TOKEN"
	envTokenFile = "PULUMI_OIDC_TOKEN_FILE"
	fileToken    = "pulumi.oidc"
)

// Bounds on the time for which a step waits for the server and the clouds.
const (
	fetchTimeout = 3 * time.Minute
	stepTimeout  = 30 * time.Second // for credentials that an earlier step could already use
)

// Server issues identity tokens; [protocol.JobClient] implements it.
type Server interface {
	IdentityToken(ctx context.Context, audience string) (protocol.IdentityToken, error)
}

// Options configure a [Keeper].
type Options struct {
	Settings *workflow.OIDCSettings // nil: the job needs only the identity token
	Token    string                 // the identity token of the launch; "": none
	Server   Server
	JobDir   string
	Link     string                       // another path of the token file, if it can be created; "": none
	Mask     func(...redact.Secret) error // masks values that replace earlier ones of the same names
	Notify   func(line string)            // adds a line to the deployment's log
	Log      *logrus.Entry
}

// Env is the environment in which the job's steps run without cloud credentials.
type Env struct {
	Vars map[string]string
	// Given reports whether the deployment's settings or the agent set a variable. They take
	// precedence over credentials of this package.
	Given func(name string) bool
}

// Keeper obtains and renews the credentials of one job. Its methods are safe for concurrent use.
type Keeper struct {
	opts Options

	renewing sync.Mutex // serializes requests for identity tokens

	arrived chan struct{} // receives when the token has changed

	mu    sync.Mutex
	token token
	aws   *awsRole
	vars  map[string]string // of Azure and Google Cloud
	local *tokenEndpoint
	alarm *time.Timer // rings when credentials in the running step's environment expire
}

// New returns a keeper and writes the token file. The caller must call [Keeper.Close].
func New(opts Options) (*Keeper, error) {
	k := &Keeper{opts: opts, vars: map[string]string{}, arrived: make(chan struct{}, 1)}
	if opts.Token == "" {
		return k, nil
	}
	if err := k.use(launchToken(opts.Token, time.Now())); err != nil {
		return nil, err
	}
	if opts.Link != "" {
		// The official path. Only root can create it in most images.
		if err := os.Symlink(k.path(fileToken), opts.Link); err != nil {
			opts.Log.WithError(err).Debug("linking the file with the OIDC token")
		}
	}
	return k, nil
}

func (k *Keeper) path(name string) string { return filepath.Join(k.opts.JobDir, name) }

// writeFile replaces a file that the steps read, at once as a whole.
func (k *Keeper) writeFile(name string, data []byte) error {
	if err := durable.WriteFile(k.path(name), data, 0o600); err != nil {
		return fmt.Errorf("writing %s to the job directory: %w", name, err)
	}
	return nil
}

// Close ends the service for steps and removes the files with credentials.
func (k *Keeper) Close() {
	k.StepEnded()
	k.mu.Lock()
	local := k.local
	k.local = nil
	k.mu.Unlock()
	if local != nil {
		local.close()
	}
	for _, name := range []string{fileToken, fileAWS} {
		if err := os.Remove(k.path(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			k.opts.Log.WithError(err).Warn("removing the job's credentials")
		}
	}
	if k.opts.Link != "" {
		if target, err := os.Readlink(k.opts.Link); err == nil && target == k.path(fileToken) {
			_ = os.Remove(k.opts.Link) // it points nowhere now
		}
	}
}

// Fetch obtains the credentials that the settings request and prints what they are to out. An error
// is one sentence for the owner of the settings.
func (k *Keeper) Fetch(ctx context.Context, env Env, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	identity, err := k.freshToken(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "The deployment's identity: "+identity.claims.String())
	caller, err := newCaller(env.Vars)
	if err != nil {
		return err
	}
	s := k.opts.Settings
	if s.AWS != nil && !brings(env, out, "AWS", awsNames...) {
		if err := k.fetchAWS(ctx, caller, env, identity, out); err != nil {
			return err
		}
	}
	if s.Azure != nil && !brings(env, out, "Azure", "ARM_CLIENT_SECRET") {
		if err := k.fetchAzure(ctx, caller, env, identity, out); err != nil {
			return err
		}
	}
	if s.GCP != nil && !brings(env, out, "Google Cloud", "GOOGLE_CREDENTIALS", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_OAUTH_ACCESS_TOKEN") {
		return k.fetchGCP(ctx, caller, env, identity, out)
	}
	return nil
}

// brings reports whether the environment already contains credentials for a cloud, which a mixture
// with ours would break.
func brings(env Env, out io.Writer, cloud string, names ...string) bool {
	for _, name := range names {
		if env.Given(name) {
			fmt.Fprintf(out, "%s: skipped, because the environment variables of the deployment or the agent set %s\n", cloud, name)
			return true
		}
	}
	return false
}

// set adds variables for all later steps.
func (k *Keeper) set(vars map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.Copy(k.vars, vars)
}

// ForStep returns the variables of a step that is about to start. It renews credentials that cannot
// be renewed inside the step.
func (k *Keeper) ForStep(ctx context.Context) map[string]string {
	k.mu.Lock()
	role := k.aws
	k.mu.Unlock()
	vars := map[string]string{}
	if role != nil {
		k.refreshAWS(ctx, role)
		maps.Copy(vars, role.vars())
		k.setAlarm(role)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.Copy(vars, k.vars)
	if k.token.text != "" {
		vars[EnvToken] = k.token.text
		vars[envTokenFile] = k.path(fileToken)
	}
	return vars
}

// StepEnded must be called when a step has ended.
func (k *Keeper) StepEnded() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.alarm != nil {
		k.alarm.Stop()
		k.alarm = nil
	}
}

// Run renews the credentials until ctx is done.
func (k *Keeper) Run(ctx context.Context) {
	var owned sync.WaitGroup
	owned.Go(func() { k.keepToken(ctx) })
	owned.Go(func() { k.keepAWS(ctx) })
	owned.Wait()
}

// renewals are the pauses between attempts to renew credentials.
var renewals = retry.Policy{First: time.Second, Max: 30 * time.Second}
