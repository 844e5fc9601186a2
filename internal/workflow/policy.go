package workflow

import (
	"encoding/json"
	"time"
)

// PolicyEvaluation is the structured part of the job that evaluates the packs of an audit policy group on one version
// of a stack's state. It changes nothing, so the server may assign it again at any time.
type PolicyEvaluation struct {
	ClaimID      string `json:"claimId"` // names the claim in the report
	Organization string `json:"organization"`
	Project      string `json:"project"`
	Stack        string `json:"stack"`
	Group        string `json:"group"`   // name of the policy group
	Version      int64  `json:"version"` // of the stack's state
	BackendURL   string `json:"backendURL"`
	// AccessToken is for the runner's own calls: it reads this stack's states and reports the results. No pack and no
	// pulumi gets it.
	AccessToken string       `json:"accessToken"`
	Packs       []PolicyPack `json:"packs"`
	PackTimeout Duration     `json:"packTimeout,omitempty"` // of the evaluation of one pack; 0 = only the step's
}

// StackName returns the fully qualified name, organization/project/stack.
func (e *PolicyEvaluation) StackName() string {
	return e.Organization + "/" + e.Project + "/" + e.Stack
}

// PolicyPack is a version of a policy pack that a job evaluates.
type PolicyPack struct {
	Name       string `json:"name"`
	Version    int64  `json:"version"`
	VersionTag string `json:"versionTag,omitempty"`
	Location   string `json:"location"` // signed address of the archive
	SHA256     string `json:"sha256"`   // of the archive, in lower-case hexadecimal digits
	// Config is the configuration by policy, each with its level, in the form of --policy-pack-config.
	Config       json.RawMessage `json:"config,omitempty"`
	Environments []string        `json:"environments,omitempty"`
}

// Label returns the pack's name and version for sentences.
func (p *PolicyPack) Label() string {
	if p.VersionTag != "" {
		return p.Name + "@" + p.VersionTag
	}
	return p.Name
}

// PolicyResults is the report of a [PolicyEvaluation]. Succeeded, Violations and their members have the names of the
// public API.
type PolicyResults struct {
	Succeeded  bool              `json:"succeeded"` // all packs could be evaluated, whatever they found
	Violations []PolicyViolation `json:"violations"`
	// Packs says of each pack whether it could be evaluated. Stock runners omit it.
	Packs []PolicyPackResult `json:"packs,omitempty"`
	// Truncated is set if any pack reported more than the report contains.
	Truncated bool `json:"truncated,omitempty"`
}

// PolicyViolation is one violation of a policy.
type PolicyViolation struct {
	PolicyName        string `json:"policyName"`
	PolicyPackName    string `json:"policyPackName"`
	PolicyPackVersion string `json:"policyPackVersion"`
	ResourceURN       string `json:"resourceURN"`
	EnforcementLevel  string `json:"enforcementLevel"`
	Kind              string `json:"kind"` // always "audit"
	Message           string `json:"message"`
	Severity          string `json:"severity,omitempty"`
}

// PolicyPackResult says whether a pack could be evaluated.
type PolicyPackResult struct {
	Name       string `json:"name"`
	Version    int64  `json:"version"`
	VersionTag string `json:"versionTag,omitempty"`
	// Error says why the pack could not be evaluated. It is one line; "" means that it was evaluated.
	Error string `json:"error,omitempty"`
	// Truncated is set if the pack reported more than the report contains.
	Truncated bool `json:"truncated,omitempty"`
}

// PolicyReport is the body of the report of a [PolicyEvaluation].
type PolicyReport struct {
	ClaimID string        `json:"claimId"`
	Results PolicyResults `json:"results"`
}

// The times that an evaluation may take.
const (
	PolicyJobTimeout  = 30 * time.Minute
	PolicyPackTimeout = 10 * time.Minute
)

// MaxPolicyViolations is the maximum number of violations in the report of a [PolicyEvaluation].
const MaxPolicyViolations = 5000

// PolicySteps returns the steps of every [PolicyEvaluation].
func PolicySteps() []Step {
	return []Step{
		{Name: "Setup", Run: RunSetup},
		{Name: "Get state", Run: RunPolicyState},
		{Name: "Install policy packs", Run: RunPolicyInstall},
		{Name: "Evaluate policies", Run: RunPolicyEvaluate},
		{Name: "Report results", Run: RunPolicyReport},
	}
}
