package oidc

import (
	"strings"
	"testing"
)

const acme = "urn:pulumi:org:acme"

func TestDecide(t *testing.T) {
	claims, err := parseClaims([]byte(`{"iss": "i", "sub": "repo:acme/app:ref:refs/heads/main", "aud": ["other", "urn:pulumi:org:acme"],
		"groups": ["dev", "ops"], "kubernetes.io": {"namespace": "agents"}, "host": "ci.example.com", "attempt": 1}`))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := parseClaims([]byte(`{"sub": "repo:acme/app:ref:refs/heads/main", "aud": "sts.amazonaws.com"}`))
	if err != nil {
		t.Fatal(err)
	}
	runner := func(decision, pool string, rules ...string) Policy {
		p := Policy{Decision: decision, TokenType: RunnerToken, RunnerID: pool, Rules: map[string]string{}}
		for i := 0; i < len(rules); i += 2 {
			p.Rules[rules[i]] = rules[i+1]
		}
		return p
	}
	organization := func(decision string, permissions ...string) Policy {
		return Policy{Decision: decision, TokenType: OrganizationToken, AuthorizedPermissions: permissions, Rules: map[string]string{"sub": "repo:acme/*"}}
	}
	pool := wish{tokenType: RunnerToken, subject: "p1", audience: acme}
	org := wish{tokenType: OrganizationToken, audience: acme}
	admin := wish{tokenType: OrganizationToken, admin: true, audience: acme}
	sub := []string{"sub", "repo:acme/*"}
	for _, tt := range []struct {
		name     string
		policies []Policy
		wish     wish
		claims   map[string]any
		want     verdict
	}{
		{"no policies", nil, pool, claims, unmatched},
		{"allowed", []Policy{runner(Allow, "p1", sub...)}, pool, claims, allowed},
		{"another pool", []Policy{runner(Allow, "p2", sub...)}, pool, claims, unmatched},
		{"another type", []Policy{organization(Allow, "admin")}, pool, claims, unmatched},
		{"another type of the same name", []Policy{{Decision: Allow, TokenType: PersonalToken, UserLogin: "p1", Rules: map[string]string{"sub": "*"}}}, pool, claims, unmatched},
		{"all rules must match", []Policy{runner(Allow, "p1", "sub", "repo:acme/*", "host", "x")}, pool, claims, unmatched},
		{"an absent claim", []Policy{runner(Allow, "p1", "absent", "*")}, pool, claims, unmatched},
		{"one of a list", []Policy{runner(Allow, "p1", "groups", "ops")}, pool, claims, allowed},
		{"none of a list", []Policy{runner(Allow, "p1", "groups", "o")}, pool, claims, unmatched},
		{"nested", []Policy{runner(Allow, "p1", `"kubernetes.io".namespace`, "agent?")}, pool, claims, allowed},
		{"nested without quotes", []Policy{runner(Allow, "p1", "kubernetes.io.namespace", "*")}, pool, claims, unmatched},
		{"a number", []Policy{runner(Allow, "p1", "attempt", "1")}, pool, claims, allowed},
		{"deny first", []Policy{runner(Deny, "p1", "sub", "*main"), runner(Allow, "p1", sub...)}, pool, claims, denied},
		{"deny last", []Policy{runner(Allow, "p1", sub...), runner(Deny, "p1", "sub", "*main")}, pool, claims, denied},
		{"deny that does not match", []Policy{runner(Allow, "p1", sub...), runner(Deny, "p1", "sub", "*dev")}, pool, claims, allowed},
		{"deny of another pool", []Policy{runner(Allow, "p1", sub...), runner(Deny, "p2", "sub", "*")}, pool, claims, allowed},
		{"deny without rules", []Policy{runner(Allow, "p1", sub...), runner(Deny, "p1")}, pool, claims, denied},
		{"a dot is a dot where it allows", []Policy{runner(Allow, "p1", "host", "ci.exampl..com")}, pool, claims, unmatched},
		{"a dot is any character where it denies", []Policy{runner(Allow, "p1", sub...), runner(Deny, "p1", "host", "ci.exampl..com")}, pool, claims, denied},
		{"issued for another audience", []Policy{runner(Allow, "p1", sub...)}, pool, elsewhere, unmatched},
		{"issued for another audience, which a rule allows", []Policy{runner(Allow, "p1", "sub", "repo:acme/*", "aud", "sts.amazonaws.com")}, pool, elsewhere, allowed},
		{"issued for an audience other than the rule's", []Policy{runner(Allow, "p1", "sub", "repo:acme/*", "aud", "sts.x")}, pool, elsewhere, unmatched},
		{"one policy's audience is not another's", []Policy{runner(Allow, "p1", "sub", "no", "aud", "*"), runner(Allow, "p1", sub...)}, pool, elsewhere, unmatched},
		{"denied whatever the audience", []Policy{runner(Allow, "p1", "sub", "*", "aud", "*"), runner(Deny, "p1", sub...)}, pool, elsewhere, denied},
		{"organization", []Policy{organization(Allow, "standard")}, org, claims, allowed},
		{"organization of an admin policy", []Policy{organization(Allow, "admin")}, org, claims, allowed},
		{"admin", []Policy{organization(Allow, "standard", "admin")}, admin, claims, allowed},
		{"admin with standard only", []Policy{organization(Allow, "standard")}, admin, claims, unmatched},
		{"denied organization", []Policy{organization(Allow, "admin"), organization(Deny)}, org, claims, denied},
	} {
		if got := decide(tt.policies, tt.wish, tt.claims); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestCheckPolicies(t *testing.T) {
	good := func(change func(*Policy)) []Policy {
		p := Policy{Decision: Allow, TokenType: RunnerToken, RunnerID: "p", Rules: map[string]string{"sub": "x"}}
		if change != nil {
			change(&p)
		}
		return []Policy{{Decision: Deny, TokenType: TeamToken, TeamName: "t"}, p}
	}
	ok := good(nil)
	if err := checkPolicies(ok); err != nil {
		t.Fatalf("good policies: %v", err)
	}
	if ok[0].Rules == nil || ok[0].AuthorizedPermissions == nil {
		t.Error("absent lists are still nil")
	}
	for want, policies := range map[string][]Policy{
		"policy definition can not be empty":      nil,
		"at most 50":                              make([]Policy, 51),
		"policies[1].decision":                    good(func(p *Policy) { p.Decision = "Allow" }),
		"policies[1].tokenType":                   good(func(p *Policy) { p.TokenType = "user" }),
		"policies[1].runnerID":                    good(func(p *Policy) { p.RunnerID = "" }),
		"policies[1].userLogin":                   good(func(p *Policy) { p.TokenType = PersonalToken }),
		"policies[1].teamName":                    good(func(p *Policy) { p.TokenType = TeamToken }),
		"policies[1].roleID":                      good(func(p *Policy) { p.RoleID = "r" }),
		"policies[1].authorizedPermissions: only": good(func(p *Policy) { p.AuthorizedPermissions = []string{"root"} }),
		"policies[1].authorizedPermissions: an":   good(func(p *Policy) { p.TokenType = OrganizationToken }),
		"policies[1].authorizedPermissions: has":  good(func(p *Policy) { p.AuthorizedPermissions = make([]string, 11) }),
		"policies[1].rules: at least":             good(func(p *Policy) { p.Rules = nil }),
		`policies[1].rules["a..b"]: is not`:       good(func(p *Policy) { p.Rules = map[string]string{"a..b": "x"} }),
		`policies[1].rules["sub"]: the pattern`:   good(func(p *Policy) { p.Rules = map[string]string{"sub": ""} }),
		"at most 256 bytes":                       good(func(p *Policy) { p.Rules = map[string]string{"sub": strings.Repeat("x", 257)} }),
		"at most 20 claims": good(func(p *Policy) {
			for i := range 21 {
				p.Rules[strings.Repeat("x", i+1)] = "y"
			}
		}),
	} {
		if err := checkPolicies(policies); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want a refusal with %q", err, want)
		}
	}
}
