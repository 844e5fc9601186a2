// Package policies keeps the policy packs of organizations and the groups that say which stacks must obey them.
// A client publishes a pack in three steps: it creates a version, uploads the archive and confirms the upload. Then the
// version never changes. A group enables versions of packs for its stacks: a preventative group for their previews and
// updates, which the client checks before it changes anything; an audit group for evaluations of their states.
package policies

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/storage/quota"
	"workflowagent/internal/server/store"
)

// The modes of groups.
const (
	Preventative = "preventative" // previews and updates of the stacks must obey
	Audit        = "audit"        // the states of the stacks are evaluated
)

// The kinds of members of groups.
const (
	Stacks   = "stacks"
	Accounts = "accounts" // of Insights, which the server does not offer
)

// The groups that each organization has.
const (
	DefaultGroup         = "default-policy-group"
	DefaultAccountsGroup = "default-accounts-policy-group"
)

// The enforcement levels of policies.
const (
	Advisory  = "advisory"
	Mandatory = "mandatory"
	Remediate = "remediate"
	Disabled  = "disabled"
)

// Policy is a policy of a pack as the client describes it. Clients use the same names of members.
type Policy struct {
	Name             string        `json:"name"`
	DisplayName      string        `json:"displayName"`
	Description      string        `json:"description"`
	EnforcementLevel string        `json:"enforcementLevel"`
	Message          string        `json:"message"`
	ConfigSchema     *ConfigSchema `json:"configSchema,omitempty"`
	Severity         string        `json:"severity,omitempty"`
	Framework        *Framework    `json:"framework,omitempty"`
	Tags             []string      `json:"tags,omitempty"`
	RemediationSteps string        `json:"remediationSteps,omitempty"`
	URL              string        `json:"url,omitempty"`
}

// ConfigSchema is the JSON schema of a policy's configuration.
type ConfigSchema struct {
	Properties map[string]json.RawMessage `json:"properties,omitempty"`
	Required   []string                   `json:"required,omitempty"`
	Type       string                     `json:"type"`
}

// Framework is the compliance framework to which a policy belongs.
type Framework struct {
	Name          string `json:"name,omitempty"`
	Version       string `json:"version,omitempty"`
	Reference     string `json:"reference,omitempty"`
	Specification string `json:"specification,omitempty"`
}

// PoliciesOf returns the policies of a version.
func PoliciesOf(v store.PolicyPackVersion) ([]Policy, error) {
	var out []Policy
	err := json.Unmarshal([]byte(cmp.Or(v.Policies, "[]")), &out)
	return out, err
}

var levelNames = []string{Advisory, Mandatory, Remediate, Disabled}

// MaxBytes is the default of [Options].MaxBytes.
const MaxBytes = 256 << 20

// Options are the options of [New].
type Options struct {
	Log *logrus.Entry
	// Key signs the addresses of archives; see [AddressPurpose].
	Key []byte
	// ExternalURL is the server's URL for clients, without a trailing slash.
	ExternalURL string
	// MaxBytes is the limit of an archive's size; 0 means [MaxBytes].
	MaxBytes int64
	Quota    *quota.Quota // nil means no limit
}

// Hooks let other domains follow changes.
type Hooks struct {
	// GroupChanged is called in the transaction in which the packs, the members or the pool of a group change. The write
	// owns the organization.
	GroupChanged func(ctx context.Context, tx *store.Tx, g store.PolicyGroup) error
	// Except adds exceptions to the packs that a stack must obey.
	Except func(tx *store.Tx, st store.Stack, required []Required) error
}

// Service manages policy packs and groups. Its methods may be called concurrently.
type Service struct {
	db        *store.DB
	log       *logrus.Entry
	addresses addresses
	maxBytes  int64
	quota     *quota.Quota
	uploads   uploads
	hooks     Hooks
}

// New returns a service on a database.
func New(db *store.DB, o Options) *Service {
	return &Service{
		db: db, log: o.Log, addresses: addresses{key: o.Key, url: o.ExternalURL}, maxBytes: cmp.Or(o.MaxBytes, MaxBytes), quota: o.Quota,
		uploads: uploads{running: map[string]chan struct{}{}},
	}
}

// Follow sets the hooks. Call it before any other method.
func (s *Service) Follow(h Hooks) { s.hooks = h }
