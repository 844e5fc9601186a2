package oidc

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"workflowagent/internal/server/audit"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

// The decisions of a policy.
const (
	Allow = "allow"
	Deny  = "deny"
)

// TokenType is the type of an exchanged token.
type TokenType string

// The token types.
const (
	OrganizationToken TokenType = "organization"
	TeamToken         TokenType = "team"
	PersonalToken     TokenType = "personal"
	RunnerToken       TokenType = "runner" // a token for the agents of one pool
)

// TokenTypes returns all token types.
func TokenTypes() []TokenType {
	return []TokenType{RunnerToken, OrganizationToken, TeamToken, PersonalToken}
}

const (
	standardPermission = "standard"
	adminPermission    = "admin"
)

const (
	maxPolicies    = 50
	maxRules       = 20
	maxPattern     = 256
	maxPermissions = 10
)

// Policy is a rule that allows or denies tokens. It has the same JSON form in the public API and in
// the database.
type Policy struct {
	Decision  string    `json:"decision"`
	TokenType TokenType `json:"tokenType"`
	TeamName  string    `json:"teamName,omitempty"`
	UserLogin string    `json:"userLogin,omitempty"`
	RunnerID  string    `json:"runnerID,omitempty"` // id of an agent pool
	RoleID    string    `json:"roleID,omitempty"`
	// AuthorizedPermissions applies to organization tokens.
	AuthorizedPermissions []string `json:"authorizedPermissions"`
	// Rules maps claim paths to patterns. All must match.
	Rules map[string]string `json:"rules"`
}

// PolicySet holds all policies of one issuer.
type PolicySet struct {
	ID         string
	Version    int64
	CreatedAt  time.Time
	ModifiedAt time.Time
	Policies   []Policy
}

func policySet(row store.OIDCPolicy) (PolicySet, error) {
	set := PolicySet{ID: row.ID, Version: row.Version, CreatedAt: row.CreatedAt, ModifiedAt: row.ModifiedAt}
	if err := json.Unmarshal([]byte(row.Document), &set.Policies); err != nil {
		return set, fmt.Errorf("reading policy %s: %w", row.ID, err)
	}
	return set, nil
}

// Policies returns the policies of an issuer.
func (s *Service) Policies(ctx context.Context, orgID, issuerID string) (PolicySet, error) {
	set, err := read(ctx, s.db, "reading the policies of an issuer", func(tx *store.Tx) (PolicySet, error) {
		row, err := ofIssuer(orgID, issuerID)(tx)
		if err != nil {
			return PolicySet{}, err
		}
		return policySet(row)
	})
	return set, issuerNotFound(err, issuerID)
}

// SetPolicies replaces an issuer's policies, identified by the policy set's id.
func (s *Service) SetPolicies(ctx context.Context, p identity.Principal, orgID, policyID string, policies []Policy) (PolicySet, error) {
	if err := checkPolicies(policies); err != nil {
		return PolicySet{}, err
	}
	set, err := s.changePolicies(ctx, p, orgID,
		func(tx *store.Tx) (store.OIDCPolicy, error) { return tx.OIDCPolicy(orgID, policyID) },
		func(PolicySet) ([]Policy, error) { return policies, nil })
	return set, store.IfMissing(err, fault.NotFound("auth policy '%s' not found", policyID))
}

// AddPolicy adds a policy to those of an issuer.
func (s *Service) AddPolicy(ctx context.Context, p identity.Principal, orgID, issuerID string, policy Policy) error {
	_, err := s.changePolicies(ctx, p, orgID, ofIssuer(orgID, issuerID), func(set PolicySet) ([]Policy, error) {
		return append(set.Policies, policy), nil
	})
	return issuerNotFound(err, issuerID)
}

// RemovePolicy removes the policy at an index of a version of an issuer's policies. It returns a
// conflict if the policies have changed since.
func (s *Service) RemovePolicy(ctx context.Context, p identity.Principal, orgID, issuerID string, version int64, at int) error {
	_, err := s.changePolicies(ctx, p, orgID, ofIssuer(orgID, issuerID), func(set PolicySet) ([]Policy, error) {
		if set.Version != version || at < 0 || at >= len(set.Policies) {
			return nil, fault.Conflict("the policies have changed meanwhile; nothing was removed")
		}
		return slices.Delete(set.Policies, at, at+1), nil
	})
	return issuerNotFound(err, issuerID)
}

func ofIssuer(orgID, issuerID string) func(tx *store.Tx) (store.OIDCPolicy, error) {
	return func(tx *store.Tx) (store.OIDCPolicy, error) {
		if _, err := tx.OIDCIssuer(orgID, issuerID); err != nil {
			return store.OIDCPolicy{}, err
		}
		return tx.OIDCPolicyOf(issuerID)
	}
}

// changePolicies replaces the policies that find returns.
func (s *Service) changePolicies(ctx context.Context, p identity.Principal, orgID string, find func(*store.Tx) (store.OIDCPolicy, error), change func(PolicySet) ([]Policy, error)) (PolicySet, error) {
	var set PolicySet
	err := s.db.Write(ctx, scope.Organization(orgID), func(tx *store.Tx) error {
		row, err := find(tx)
		if err != nil {
			return err
		}
		if set, err = policySet(row); err != nil {
			return err
		}
		policies, err := change(set)
		if err == nil {
			err = checkPolicies(policies)
		}
		if err == nil {
			err = checkSubjects(tx, orgID, policies)
		}
		if err != nil {
			return err
		}
		document, err := json.Marshal(policies)
		if err != nil {
			return fmt.Errorf("writing policies: %w", err)
		}
		row.Version++
		row.Document, row.ModifiedAt = string(document), time.Now().UTC()
		if err := tx.UpdateOIDCPolicy(row); err != nil {
			return err
		}
		if set, err = policySet(row); err != nil {
			return err
		}
		return audit.Record(ctx, tx, audit.Entry{
			OrgID: orgID, Action: audit.IssuerPoliciesChanged, Subject: audit.Subject{Kind: "issuer", ID: row.IssuerID},
			Detail: map[string]any{"version": row.Version, "policies": len(policies)},
		})
	})
	if err != nil {
		return PolicySet{}, err
	}
	s.log.WithFields(logrus.Fields{"policy": set.ID, "version": set.Version, "by": p.Name()}).Info("changed the policies of an OIDC issuer")
	return set, nil
}

// checkPolicies validates policies without the database. It replaces nil lists and maps with empty
// ones.
func checkPolicies(policies []Policy) error {
	if len(policies) == 0 {
		return fault.Invalid("policy definition can not be empty: member \"policies\" needs at least one policy")
	}
	if len(policies) > maxPolicies {
		return fault.Invalid("member \"policies\" has %d policies; at most %d are allowed", len(policies), maxPolicies)
	}
	for i := range policies {
		if policies[i].AuthorizedPermissions == nil {
			policies[i].AuthorizedPermissions = []string{}
		}
		if policies[i].Rules == nil {
			policies[i].Rules = map[string]string{}
		}
		if member, problem := policies[i].check(); problem != "" {
			return fault.Invalid("policies[%d].%s: %s", i, member, problem)
		}
	}
	return nil
}

// check returns the first invalid member of a policy, and the reason why it is invalid.
func (p Policy) check() (member, problem string) {
	if p.Decision != Allow && p.Decision != Deny {
		return "decision", `must be "allow" or "deny"`
	}
	switch subject := "is required for this type of token"; p.TokenType {
	case OrganizationToken:
		if p.Decision == Allow && len(p.AuthorizedPermissions) == 0 && p.RoleID == "" {
			return "authorizedPermissions", `an organization token needs "standard" or "admin"`
		}
	case TeamToken:
		if p.TeamName == "" {
			return "teamName", subject
		}
	case PersonalToken:
		if p.UserLogin == "" {
			return "userLogin", subject
		}
	case RunnerToken:
		if p.RunnerID == "" {
			return "runnerID", subject + ": the id of an agent pool"
		}
	default:
		return "tokenType", `must be "organization", "team", "personal" or "runner"`
	}
	if p.RoleID != "" {
		return "roleID", "this server has no roles"
	}
	if len(p.AuthorizedPermissions) > maxPermissions {
		return "authorizedPermissions", "has too many permissions"
	}
	for _, perm := range p.AuthorizedPermissions {
		if perm != standardPermission && perm != adminPermission {
			return "authorizedPermissions", `only "standard" and "admin" exist`
		}
	}
	return p.checkRules()
}

func (p Policy) checkRules() (member, problem string) {
	if len(p.Rules) == 0 && p.Decision == Allow {
		return "rules", "at least one rule is required: without rules, every token from the issuer would be accepted"
	}
	if len(p.Rules) > maxRules {
		return "rules", fmt.Sprintf("at most %d claims can be checked", maxRules)
	}
	for name, pattern := range p.Rules {
		if len(name) > maxPattern || len(pattern) > maxPattern {
			return "rules", fmt.Sprintf("claim paths and patterns have at most %d bytes", maxPattern)
		}
		if _, err := parsePath(name); err != nil {
			return fmt.Sprintf("rules[%q]", name), `is not a claim path (` + err.Error() + `): write sub, or "kubernetes.io".namespace`
		}
		if pattern == "" {
			return fmt.Sprintf("rules[%q]", name), "the pattern is empty"
		}
	}
	return "", ""
}

// checkSubjects returns an error if a policy names a user, team or pool that does not exist. Otherwise, a
// policy with a typo would silently have no effect.
func checkSubjects(tx *store.Tx, orgID string, policies []Policy) error {
	for i, p := range policies {
		var err error
		var problem string
		switch p.TokenType {
		case RunnerToken:
			_, err = tx.Pool(orgID, p.RunnerID)
			problem = fmt.Sprintf("runnerID: %q is not the id of an agent pool of this organization", p.RunnerID)
		case PersonalToken:
			_, err = tx.MemberByLogin(orgID, p.UserLogin)
			problem = fmt.Sprintf("userLogin: %q is not a member of this organization", p.UserLogin)
		case TeamToken:
			_, err = tx.TeamByName(orgID, p.TeamName)
			problem = fmt.Sprintf("teamName: %q is not a team of this organization", p.TeamName)
		}
		if err != nil {
			return store.IfMissing(err, fault.Invalid("policies[%d].%s", i, problem))
		}
	}
	return nil
}
