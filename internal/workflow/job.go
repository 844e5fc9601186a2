package workflow

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"
)

// Duration is a time.Duration that is encoded as Go duration text ("1h30m"), as in the public job
// definition.
type Duration time.Duration

// MarshalText returns d as Go duration text.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses Go duration text. Empty text means zero.
func (d *Duration) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*d = 0
		return nil
	}
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration %q: use a form like 30s or 1h30m", text)
	}
	*d = Duration(v)
	return nil
}

// JobDefinition contains everything that a runner needs to run one job, in its wire form
// (docs/protocol.md). Stock servers omit the fields from SecretEnv on. Stock runners ignore them.
type JobDefinition struct {
	OS           string            `json:"os"`
	Architecture string            `json:"architecture"`
	Image        *Image            `json:"image"` // never null on the wire: a stock runner crashes on null
	Shell        string            `json:"shell"`
	Timeout      Duration          `json:"timeout,omitempty"` // of the whole job; 0 = none
	Env          map[string]string `json:"env"`
	Steps        []Step            `json:"steps"` // index 0 is the setup step, which the agent reports

	SecretEnv []string `json:"secretEnv,omitempty"` // names of Env entries to mask in the log
	// One of these is set, by the type of the job.
	Deployment       *Deployment       `json:"deployment,omitempty"`
	PolicyEvaluation *PolicyEvaluation `json:"policyEvaluation,omitempty"`
}

// Image is a job's container image and the credentials to pull it.
type Image struct {
	Reference   string            `json:"reference"`
	Credentials *ImageCredentials `json:"credentials,omitempty"`
}

// ImageCredentials are the credentials for an image's registry.
type ImageCredentials struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// Step is one step of a job. Run is shell text or one of the Run… constants, which our runner
// executes without a shell. The parameters of these commands come from [Deployment], never from
// Run.
type Step struct {
	Name       string   `json:"name"`
	Run        string   `json:"run"`
	WorkingDir string   `json:"workingDir,omitempty"`
	Timeout    Duration `json:"timeout,omitempty"` // 0 = only the job's timeout
}

// The commands of our server's steps. The n-th step with RunPreRun runs the n-th pre-run command.
const (
	RunSetup        = "" // step 0, performed by the agent
	RunCredentials  = "workflow-runner credentials"
	RunSourceGit    = "workflow-runner source git"
	RunEnvironments = "workflow-runner environments"
	RunDependencies = "workflow-runner dependencies"
	RunPreRun       = "workflow-runner pre-run"
	RunPostRun      = "workflow-runner post-run" // never in a definition's steps; see [Deployment]
	RunPulumi       = "workflow-runner pulumi"   // followed by a space and the operation
	RunRemoveStack  = "workflow-runner remove-stack"

	// The steps of a [PolicyEvaluation], in this order.
	RunPolicyState    = "workflow-runner policy state"
	RunPolicyInstall  = "workflow-runner policy install"
	RunPolicyEvaluate = "workflow-runner policy evaluate"
	RunPolicyReport   = "workflow-runner policy report"
)

// RunCommandPrefix is the prefix of Run in every step that our server writes. A shell runs any
// other text.
const RunCommandPrefix = "workflow-runner "

// SourceStepName is the name of the step that fetches the source.
const SourceStepName = "Get source"

// EnvironmentsStepName is the name of the step that opens environments.
const EnvironmentsStepName = "Open environments"

// PulumiStepName returns the name of the step that runs pulumi. The stock CLI waits for a log
// header with exactly this text before it follows the update.
func PulumiStepName(op Operation) string { return "pulumi " + string(op) }

// Deployment is the structured part of a deployment's job.
type Deployment struct {
	ID           string    `json:"id"`
	Version      int64     `json:"version"` // 1-based number of the deployment on its stack
	Organization string    `json:"organization"`
	Project      string    `json:"project"`
	Stack        string    `json:"stack"`
	Operation    Operation `json:"operation"`
	BackendURL   string    `json:"backendURL"` // the jobs' PULUMI_BACKEND_URL

	Source *Source       `json:"source,omitempty"` // nil: the image contains the program
	OIDC   *OIDCSettings `json:"oidc,omitempty"`   // without placeholders; nil: the job gets no cloud credentials
	// Environments are the names of the environments whose variables and files the later steps get.
	Environments   []string `json:"environments,omitempty"`
	PreRunCommands []string `json:"preRunCommands,omitempty"`
	// PostRunCommands run after the last step, as the steps that follow it by number. Runners that do not
	// know them end the job without them.
	PostRunCommands []PostRunCommand `json:"postRunCommands,omitempty"`
	Options         Options          `json:"options"`
	RootPath        string           `json:"rootPath,omitempty"`  // directory that the job can write to; "" means the runner's job directory
	Workspace       *Workspace       `json:"workspace,omitempty"` // nil: the job keeps nothing for later ones, and finds nothing
	// SkipCheckpoints means that updates are faster without checkpoints, and that the server refuses
	// updates that skip them and send no journal.
	SkipCheckpoints bool `json:"skipCheckpoints,omitempty"`
	// PulumiVersion is the range of versions of pulumi that the job may run, in the form of
	// [ParseVersionRange]; "" for any.
	PulumiVersion string `json:"pulumiVersion,omitempty"`
	// OpensEnvironments means that the job can open environments, whose secrets the runner requests while
	// the job runs and masks.
	OpensEnvironments bool `json:"opensEnvironments,omitempty"`
}

// Workspace names what an agent keeps of a job for the next jobs of the same stack and trust class:
// checkout, dependencies and the caches of tools.
type Workspace struct {
	// Scope is 64 lower-case hexadecimal digits. Jobs with different scopes never see each other's files.
	Scope string `json:"scope"`
	// Key identifies what the content depends on. A job whose key differs from that of the content
	// discards the content.
	Key string `json:"key"`
}

// Valid reports whether the scope can be part of the names of directories and volumes.
func (w *Workspace) Valid() bool {
	return w != nil && IsScope(w.Scope)
}

// IsScope reports whether s has the form of a workspace's scope, which is a single path element.
func IsScope(s string) bool { return scopeFormat.MatchString(s) }

var scopeFormat = regexp.MustCompile(`^[0-9a-f]{64}$`)

// PostRunCommand is a command that runs after the operation.
type PostRunCommand struct {
	Command string `json:"command"`
	When    string `json:"when,omitempty"` // one of the When… constants; "" means always
}

// The values of [PostRunCommand.When]. A job that is stopped has neither succeeded nor failed.
const (
	WhenAlways  = "always"
	WhenSuccess = "success"
	WhenFailure = "failure"
)

// StackName returns the fully qualified name, organization/project/stack.
func (d *Deployment) StackName() string {
	return d.Organization + "/" + d.Project + "/" + d.Stack
}

// Options are the options of an operation, with defaults applied.
type Options struct {
	SkipInstallDependencies     bool   `json:"skipInstallDependencies,omitempty"`
	SkipIntermediateDeployments bool   `json:"-"`               // for the server's queue only
	Shell                       string `json:"shell,omitempty"` // for pre-run commands; "" means the job's shell
	DeleteAfterDestroy          bool   `json:"deleteAfterDestroy,omitempty"`
	RemediateIfDriftDetected    bool   `json:"remediateIfDriftDetected,omitempty"`
}

// Source locates the program. Exactly one member is set.
type Source struct {
	Git *GitSource `json:"git,omitempty"`
}

// GitSource is a program in a git repository. Branch (a short name or a full ref) or Commit selects
// the revision. If both are empty, it is the default branch.
type GitSource struct {
	RepoURL string `json:"repoUrl"`
	Branch  string `json:"branch,omitempty"`
	Commit  string `json:"commit,omitempty"`
	RepoDir string `json:"repoDir,omitempty"` // the program's directory inside the repository
	// Submodules also fetches the submodules, recursively.
	Submodules bool `json:"submodules,omitempty"`
	// LFS also fetches the files that Git LFS stores outside the repository.
	LFS bool `json:"lfs,omitempty"`
	// Depth is the number of commits to fetch, 0 for one, or [WholeHistory].
	Depth int `json:"depth,omitempty"`
	// Tags also fetches all tags.
	Tags bool     `json:"tags,omitempty"`
	Auth *GitAuth `json:"auth,omitempty"`
}

// WholeHistory is the depth of a checkout with all commits.
const WholeHistory = -1

// GitAuth contains plain credentials. On the wire, they exist only inside a job definition. The
// runner prefers the SSH key, then the access token, then the user name and password.
type GitAuth struct {
	AccessToken   string `json:"accessToken,omitempty"`
	SSHPrivateKey string `json:"sshPrivateKey,omitempty"`
	SSHPassphrase string `json:"sshPassphrase,omitempty"`
	UserName      string `json:"userName,omitempty"`
	Password      string `json:"password,omitempty"`
}

// NamedSecret is a secret of a job definition. It prints as [REDACTED] in every format.
type NamedSecret struct {
	Name  string // for messages
	value string
}

// Value returns the secret value.
func (s NamedSecret) Value() string { return s.value }

// Format implements [fmt.Formatter]. It never prints the value.
func (s NamedSecret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.Name+"=[REDACTED]") }

// accessToken is the environment variable with a job's access token, which is always a secret.
const accessToken = "PULUMI_ACCESS_TOKEN"

// Secrets returns all secrets in the definition, none of which may appear in a log.
func (j *JobDefinition) Secrets() []NamedSecret {
	var out []NamedSecret
	add := func(name, value string) {
		if value != "" {
			out = append(out, NamedSecret{name, value})
		}
	}
	for _, name := range j.SecretEnv {
		add(name, j.Env[name])
	}
	if !slices.Contains(j.SecretEnv, accessToken) {
		add(accessToken, j.Env[accessToken])
	}
	if j.Image != nil && j.Image.Credentials != nil {
		add("the image password", j.Image.Credentials.Password)
	}
	if e := j.PolicyEvaluation; e != nil {
		add("the access token of the evaluation", e.AccessToken)
		for _, p := range e.Packs {
			add("the address of the pack "+p.Name, p.Location)
		}
	}
	if d := j.Deployment; d != nil && d.Source != nil && d.Source.Git != nil && d.Source.Git.Auth != nil {
		a := d.Source.Git.Auth
		add("the git access token", a.AccessToken)
		add("the SSH key", a.SSHPrivateKey)
		add("the passphrase of the SSH key", a.SSHPassphrase)
		add("the git password", a.Password)
	}
	return out
}

// Validate returns an actionable error if the definition cannot be run. By design, unknown members
// of the wire form are not errors.
func (j *JobDefinition) Validate() error {
	if len(j.Steps) < 2 {
		return fmt.Errorf("the job definition has %d steps: step 0 (set-up) and at least one more are needed", len(j.Steps))
	}
	if j.OS != "" && j.OS != "linux" && j.OS != "darwin" {
		return fmt.Errorf("the job definition requires operating system %q, which no agent supports", j.OS)
	}
	return nil
}

// ParseJobDefinition decodes and validates a definition in its wire form.
func ParseJobDefinition(data []byte) (*JobDefinition, error) {
	var j JobDefinition
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, fmt.Errorf("reading the job definition: %w", err)
	}
	if err := j.Validate(); err != nil {
		return nil, err
	}
	return &j, nil
}
