package oidc

import (
	"slices"
	"time"
)

type wish struct {
	tokenType TokenType
	subject   string // pool id or user login; "" for the organization
	admin     bool
	audience  string // of the exchange
	// since is the time from which the subject has existed under its name; zero for pools, which
	// policies name by id.
	since time.Time
}

type verdict string

const (
	allowed   verdict = "allowed"
	denied    verdict = "a policy denies it"
	unmatched verdict = "no policy allows it"
)

// decide returns the policies' decision on a requested token, given the claims of the identity
// token. A single denial overrides all allowances. Without an allowance, the token is not granted.
func decide(policies []Policy, w wish, claims map[string]any) verdict {
	found := unmatched
	for _, p := range policies {
		if p.TokenType != w.tokenType || p.subject() != w.subject {
			continue
		}
		switch p.Decision {
		case Deny:
			if ok, _ := p.matches(claims); ok {
				return denied
			}
		case Allow:
			ok, checksAudience := p.matches(claims)
			// A policy without an audience rule accepts only tokens issued for this exchange.
			ok = ok && (checksAudience || slices.Contains(claimPath{"aud"}.values(claims), w.audience))
			if w.admin {
				ok = ok && slices.Contains(p.AuthorizedPermissions, adminPermission)
			}
			if ok {
				found = allowed
			}
		}
	}
	return found
}

// refusal returns why the policies refuse a requested token, or "".
func (s PolicySet) refusal(w wish, claims map[string]any) string {
	if w.since.After(s.ModifiedAt) {
		return "the policies are older than the team or the membership that the scope names: save them again"
	}
	if v := decide(s.Policies, w, claims); v != allowed {
		return string(v)
	}
	return ""
}

func (p Policy) subject() string {
	switch p.TokenType {
	case RunnerToken:
		return p.RunnerID
	case PersonalToken:
		return p.UserLogin
	case TeamToken:
		return p.TeamName
	default:
		return ""
	}
}

// matches reports whether all rules of a policy match, and whether one of them checks the audience.
// If a claim is a list, one of its values must match. In a denial, a dot matches any character, as
// in Pulumi Cloud. In an allowance, a dot matches only a dot; otherwise, example.com would admit
// exampleXcom. Both choices favor rejection.
func (p Policy) matches(claims map[string]any) (ok, checksAudience bool) {
	for name, pattern := range p.Rules {
		path, err := parsePath(name)
		if err != nil {
			return false, false // SetPolicies rejects such a path
		}
		checksAudience = checksAudience || slices.Equal(path, claimPath{"aud"})
		if !slices.ContainsFunc(path.values(claims), func(v string) bool { return match(pattern, v, p.Decision == Deny) }) {
			return false, checksAudience
		}
	}
	return true, checksAudience
}
