package workflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Settings are a stack's deployment settings. They are also part of a request to create a
// deployment, where other rules apply. Unknown members are dropped.
type Settings struct {
	Tag              string            `json:"tag,omitempty"`
	AgentPoolID      string            `json:"agentPoolID,omitempty"` // "" means the organization's default pool
	SourceContext    *SourceContext    `json:"sourceContext,omitempty"`
	OperationContext *OperationContext `json:"operationContext,omitempty"`
	ExecutorContext  *ExecutorContext  `json:"executorContext,omitempty"`
	CacheOptions     *CacheOptions     `json:"cacheOptions,omitempty"`
	// ConcurrencyGroup is a name. Of the stacks of an organization with the same name, none starts a
	// deployment while one of another runs. It is a setting of stacks only; requests cannot change it.
	ConcurrencyGroup string          `json:"concurrencyGroup,omitempty"`
	GitHub           *GitHubSettings `json:"gitHub,omitempty"`
	VCS              *VCSSettings    `json:"vcs,omitempty"`
}

// SourceContext locates the program. At most one member is set. If none is set, the image contains
// the program.
type SourceContext struct {
	Git      *SourceContextGit      `json:"git,omitempty"`
	Hg       *SourceContextHg       `json:"hg,omitempty"`
	Template *SourceContextTemplate `json:"template,omitempty"`
}

// SourceContextGit is a program in a git repository.
type SourceContextGit struct {
	RepoURL string           `json:"repoUrl,omitempty"`
	Branch  string           `json:"branch,omitempty"`
	Commit  string           `json:"commit,omitempty"`
	RepoDir string           `json:"repoDir,omitempty"`
	Tag     string           `json:"tag,omitempty"`
	GitAuth *GitAuthSettings `json:"gitAuth,omitempty"`
}

// SourceContextHg is a program in a Mercurial repository. It can be stored but not deployed.
type SourceContextHg struct {
	RepoURL  string           `json:"repoUrl,omitempty"`
	Branch   string           `json:"branch,omitempty"`
	Revision string           `json:"revision,omitempty"`
	RepoDir  string           `json:"repoDir,omitempty"`
	HgAuth   *GitAuthSettings `json:"hgAuth,omitempty"`
}

// SourceContextTemplate is a program made from a template. It can be stored but not deployed.
type SourceContextTemplate struct {
	SourceURL string           `json:"sourceUrl,omitempty"`
	GitAuth   *GitAuthSettings `json:"gitAuth,omitempty"`
}

// GitAuthSettings are the credentials for a repository. Only one member is set.
type GitAuthSettings struct {
	AccessToken *Secret        `json:"accessToken,omitempty"`
	SSHAuth     *SSHAuthConfig `json:"sshAuth,omitempty"`
	BasicAuth   *BasicAuth     `json:"basicAuth,omitempty"`
}

// SSHAuthConfig is an SSH key for a repository.
type SSHAuthConfig struct {
	SSHPrivateKey *Secret `json:"sshPrivateKey,omitempty"`
	Password      *Secret `json:"password,omitempty"` // passphrase of the key
}

// BasicAuth is a user name and password for a repository.
type BasicAuth struct {
	UserName *Secret `json:"userName,omitempty"`
	Password *Secret `json:"password,omitempty"`
}

// OperationContext configures the execution of an operation.
type OperationContext struct {
	PreRunCommands       []string          `json:"preRunCommands,omitempty"`
	PostRunCommands      []PostRunCommand  `json:"postRunCommands,omitempty"` // the public API does not have them
	EnvironmentVariables map[string]Secret `json:"environmentVariables,omitempty"`
	// Environments are the names of environments; see [Settings.Environments]. The public API does not have them.
	Environments []string         `json:"environments,omitempty"`
	Options      *OptionsSettings `json:"options,omitempty"`
	OIDC         *OIDCSettings    `json:"oidc,omitempty"`
	Role         *RoleSettings    `json:"role,omitempty"`
}

// These environment variables in the settings extend the checkout of a git repository. They are
// variables because clients drop members of the settings that they do not know.
const (
	SubmodulesVariable = "PULUMI_DEPLOY_GIT_SUBMODULES"
	LFSVariable        = "PULUMI_DEPLOY_GIT_LFS"
	TagsVariable       = "PULUMI_DEPLOY_GIT_TAGS"
	// DepthVariable is a number of commits, or 0 for the whole history.
	DepthVariable = "PULUMI_DEPLOY_GIT_DEPTH"
)

// OptionsSettings are the options of an operation. A nil member was not given.
type OptionsSettings struct {
	SkipInstallDependencies     *bool  `json:"skipInstallDependencies,omitempty"`
	SkipIntermediateDeployments *bool  `json:"skipIntermediateDeployments,omitempty"`
	Shell                       string `json:"shell,omitempty"`
	DeleteAfterDestroy          *bool  `json:"deleteAfterDestroy,omitempty"`
	RemediateIfDriftDetected    *bool  `json:"remediateIfDriftDetected,omitempty"`
}

// RoleSettings identify the role to which a deployment is limited.
type RoleSettings struct {
	ID                string `json:"id"`
	Name              string `json:"name,omitempty"`
	DefaultIdentifier string `json:"defaultIdentifier,omitempty"`
}

// OIDCSettings select cloud credentials that a job obtains through OpenID Connect.
type OIDCSettings struct {
	AWS   *OIDCAWS   `json:"aws,omitempty"`
	Azure *OIDCAzure `json:"azure,omitempty"`
	GCP   *OIDCGCP   `json:"gcp,omitempty"`
}

// OIDCAWS selects the AWS role that a job assumes.
type OIDCAWS struct {
	RoleARN     string   `json:"roleArn"`
	SessionName string   `json:"sessionName"`
	Duration    string   `json:"duration,omitempty"`
	PolicyARNs  []string `json:"policyArns,omitempty"`
}

// OIDCAzure selects the Azure application as which a job acts.
type OIDCAzure struct {
	ClientID       string `json:"clientId"`
	TenantID       string `json:"tenantId"`
	SubscriptionID string `json:"subscriptionId"`
}

// OIDCGCP selects the Google Cloud service account that a job impersonates.
type OIDCGCP struct {
	ProjectID      string `json:"projectId"`
	WorkloadPoolID string `json:"workloadPoolId"`
	ProviderID     string `json:"providerId"`
	ServiceAccount string `json:"serviceAccount"`
	Region         string `json:"region,omitempty"`
	TokenLifetime  string `json:"tokenLifetime,omitempty"`
}

// ExecutorContext selects the image of a deployment.
type ExecutorContext struct {
	ExecutorImage    *ImageSettings `json:"executorImage,omitempty"`
	ExecutorRootPath string         `json:"executorRootPath,omitempty"`
	WorkingDirectory string         `json:"workingDirectory,omitempty"` // sent by older clients; has no effect
}

// CacheOptions select whether jobs keep their workspace; see [Workspace].
type CacheOptions struct {
	Enable bool `json:"enable"`
}

// GitHubSettings are triggers in the older form, which supports only GitHub.
type GitHubSettings struct {
	Repository          string   `json:"repository,omitempty"`
	DeployCommits       bool     `json:"deployCommits"`
	PreviewPullRequests bool     `json:"previewPullRequests"`
	PullRequestTemplate bool     `json:"pullRequestTemplate"`
	DeployPullRequest   *int64   `json:"deployPullRequest,omitempty"`
	DeployTags          bool     `json:"deployTags,omitempty"`
	Paths               []string `json:"paths,omitempty"`
	TagFilters          []string `json:"tagFilters,omitempty"`
	ReviewStackLabels   []string `json:"reviewStackLabels,omitempty"`
	InstallationID      string   `json:"installationId,omitempty"`
	// ReviewStackTTL is the time, such as 72h, after which the review stacks of a template are
	// destroyed unless their pull request gets another commit. The public API does not have it.
	ReviewStackTTL string `json:"reviewStackTTL,omitempty"`
}

// VCSSettings are the same triggers for a repository of any provider.
type VCSSettings struct {
	Provider string `json:"provider"`
	GitHubSettings
}

// ParseSettings decodes a settings object. Its secrets can be unencrypted.
func ParseSettings(data []byte) (*Settings, error) {
	tree, err := parseTree(data)
	if err != nil {
		return nil, err
	}
	return settingsFromTree(tree)
}

func settingsFromTree(tree map[string]any) (*Settings, error) {
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("reading the deployment settings: %w", err)
	}
	var s Settings
	if err := json.Unmarshal(data, &s); err != nil {
		if path, wrong := wrongSecret(reflect.TypeFor[Settings](), tree, ""); wrong != nil {
			return nil, fmt.Errorf("the member %q: %w", path, wrong)
		}
		return nil, describeDecode(err)
	}
	s.protect()
	return &s, nil
}

// wrongSecret returns the path of the first secret or variable in v that cannot be decoded, and why. A
// decoder's own error does not name it.
func wrongSecret(t reflect.Type, v any, path string) (string, error) {
	t = objectType(t)
	if t == secretType {
		data, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(data, new(Secret))
		}
		return path, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return "", nil
	}
	members := membersOf(t)
	for _, name := range slices.Sorted(maps.Keys(m)) {
		member := members[name]
		if t.Kind() == reflect.Map {
			member = t.Elem()
		}
		if member == nil {
			continue
		}
		if at, err := wrongSecret(member, m[name], strings.TrimPrefix(path+"."+name, ".")); err != nil {
			return at, err
		}
	}
	return "", nil
}

// describeDecode returns an error that describes a decoding error in JSON's terms, and names the
// member that has the wrong type.
func describeDecode(err error) error {
	if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("the member %q cannot be a JSON %s", te.Field, te.Value)
	}
	if se, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("the deployment settings are not valid JSON: %w", se)
	}
	return fmt.Errorf("reading the deployment settings: %w", err)
}

// EachSecret calls fn for every value that can be secret, with the path of its member, and stores
// the changes that fn makes. It stops at the first error and returns it.
func (s *Settings) EachSecret(fn func(member string, v *Secret) error) error {
	for _, f := range s.secretFields() {
		if err := fn(f.member, f.value); err != nil {
			return err
		}
	}
	if s.OperationContext == nil {
		return nil
	}
	vars := s.OperationContext.EnvironmentVariables
	for name, v := range vars {
		if err := fn("operationContext.environmentVariables."+name, &v); err != nil {
			return err
		}
		vars[name] = v
	}
	return nil
}

// protect marks the credentials as secret, even if a client sent them as plain values.
func (s *Settings) protect() {
	for _, f := range s.secretFields() {
		f.value.MakeSecret()
	}
	for _, a := range s.repositoryAuths() {
		if a.BasicAuth != nil && a.BasicAuth.UserName != nil && a.BasicAuth.UserName.wasPlain {
			a.BasicAuth.UserName.makePlain()
		}
	}
}

// secretField is a credential in settings.
type secretField struct {
	member string // path
	value  *Secret
}

func (s *Settings) secretFields() []secretField {
	var out []secretField
	add := func(member string, v *Secret) {
		if v != nil {
			out = append(out, secretField{member, v})
		}
	}
	for _, a := range s.repositoryAuths() {
		add(a.member+".accessToken", a.AccessToken)
		if ssh := a.SSHAuth; ssh != nil {
			add(a.member+".sshAuth.sshPrivateKey", ssh.SSHPrivateKey)
			add(a.member+".sshAuth.password", ssh.Password)
		}
		if basic := a.BasicAuth; basic != nil {
			add(a.member+".basicAuth.userName", basic.UserName)
			add(a.member+".basicAuth.password", basic.Password)
		}
	}
	if e := s.ExecutorContext; e != nil && e.ExecutorImage != nil && e.ExecutorImage.Credentials != nil {
		add(imagePath+".credentials.password", e.ExecutorImage.Credentials.Password)
	}
	return out
}

// repositoryAuth is the credentials of a repository in settings.
type repositoryAuth struct {
	member string // path
	*GitAuthSettings
}

func (s *Settings) repositoryAuths() []repositoryAuth {
	var out []repositoryAuth
	if c := s.SourceContext; c != nil {
		if c.Git != nil && c.Git.GitAuth != nil {
			out = append(out, repositoryAuth{"sourceContext.git.gitAuth", c.Git.GitAuth})
		}
		if c.Hg != nil && c.Hg.HgAuth != nil {
			out = append(out, repositoryAuth{"sourceContext.hg.hgAuth", c.Hg.HgAuth})
		}
		if c.Template != nil && c.Template.GitAuth != nil {
			out = append(out, repositoryAuth{"sourceContext.template.gitAuth", c.Template.GitAuth})
		}
	}
	return out
}
