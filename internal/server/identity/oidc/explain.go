package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/store"
)

// Explanation says what an exchange of an identity token would result in, and why.
type Explanation struct {
	// Problem says why the server does not accept the identity token; "" if it accepts it.
	Problem string
	// Claims are the claims of the identity token, by name. They are not verified if there is a Problem.
	Claims []Claim
	// Refused says why the server would not grant the requested token; "" if the policies allow it.
	Refused  string
	Policies []PolicyResult
}

// Granted reports whether the exchange would succeed.
func (e Explanation) Granted() bool { return e.Problem == "" && e.Refused == "" }

// Claim is a claim of an identity token, with its value as JSON.
type Claim struct{ Name, Value string }

// PolicyResult is the result of one policy.
type PolicyResult struct {
	Policy
	// About reports whether the policy is about the requested token. Others have no effect.
	About bool
	// Matches reports whether all rules match.
	Matches bool
	Rules   []RuleResult // by claim
}

// RuleResult is the result of one rule of a policy.
type RuleResult struct {
	Claim, Pattern string
	Values         []string // of the claim
	Matches        bool
}

// Explain evaluates an exchange of an identity token of an issuer for a token of a type and scope. It
// changes nothing.
func (s *Service) Explain(ctx context.Context, org store.Organization, issuerID, token string, tokenType TokenType, scope string) (Explanation, error) {
	var e Explanation
	issuer, err := s.Issuer(ctx, org.ID, issuerID)
	if err != nil {
		return e, err
	}
	set, err := s.Policies(ctx, org.ID, issuerID)
	if err != nil {
		return e, err
	}
	if !slices.Contains(TokenTypes(), tokenType) {
		return e, fault.Invalid("the type of the token is unknown")
	}
	sub, err := s.verify(ctx, org, token)
	switch refusal := (*Refusal)(nil); {
	case errors.As(err, &refusal):
		e.Problem = refusal.Description
	case err != nil:
		return e, err
	case sub.issuer.ID != issuer.ID:
		e.Problem = "the subject token is of the issuer " + sub.issuer.Name
	}
	if sub.claims == nil {
		return e, nil
	}
	if e.Claims, err = claimList(sub.claims); err != nil {
		return e, err
	}
	w, reason, err := s.wish(ctx, org, tokenType, scope)
	if err != nil {
		return e, err
	}
	if e.Refused = reason; reason == "" {
		e.Refused = set.refusal(w, sub.claims)
	}
	for _, p := range set.Policies {
		e.Policies = append(e.Policies, p.explain(w, sub.claims))
	}
	return e, nil
}

// wish interprets a requested type and scope; see [target].
func (s *Service) wish(ctx context.Context, org store.Organization, tokenType TokenType, scope string) (w wish, reason string, err error) {
	err = s.db.Read(ctx, func(tx *store.Tx) (err error) {
		w, _, reason, err = target(tx, org, tokenType, scope)
		return err
	})
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		reason, err = refusal.Description, nil
	}
	w.audience = audiencePrefix + org.Name
	return w, reason, err
}

func (p Policy) explain(w wish, claims map[string]any) PolicyResult {
	r := PolicyResult{Policy: p, About: p.TokenType == w.tokenType && p.subject() == w.subject}
	r.Matches, _ = p.matches(claims)
	for _, name := range slices.Sorted(maps.Keys(p.Rules)) {
		rule := RuleResult{Claim: name, Pattern: p.Rules[name]}
		if path, err := parsePath(name); err == nil {
			rule.Values = path.values(claims)
		}
		alone := Policy{Decision: p.Decision, Rules: map[string]string{name: rule.Pattern}}
		rule.Matches, _ = alone.matches(claims)
		r.Rules = append(r.Rules, rule)
	}
	return r
}

func claimList(claims map[string]any) ([]Claim, error) {
	var out []Claim
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		value, err := json.Marshal(claims[name])
		if err != nil {
			return nil, err
		}
		out = append(out, Claim{name, string(value)})
	}
	return out, nil
}
