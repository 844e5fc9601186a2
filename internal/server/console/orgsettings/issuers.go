package orgsettings

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity/oidc"
	"workflowagent/internal/server/store"
)

type issuerForm struct{ Name, URL, Keys, Minutes string }

func formOf(v *page.Visit) issuerForm {
	return issuerForm{strings.TrimSpace(v.Form("name")), strings.TrimSpace(v.Form("url")), strings.TrimSpace(v.Form("keys")), strings.TrimSpace(v.Form("minutes"))}
}

// lifetime returns the longest lifetime of tokens; "" is the server's.
func (f issuerForm) lifetime() (time.Duration, error) {
	if f.Minutes == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(f.Minutes)
	if limit := int(oidc.MaxLifetime / time.Minute); err != nil || n < 1 || n > limit {
		return 0, fault.Invalid("The lifetime must be a number of minutes between 1 and %d.", limit)
	}
	return time.Duration(n) * time.Minute, nil
}

type issuersModel struct {
	place
	List  []store.OIDCIssuer
	Form  issuerForm
	wrong page.Wrong
}

// issuerWrong puts a problem of an issuer next to the field that it is about.
func issuerWrong(problem string) page.Wrong {
	return page.Locate(problem,
		page.About{Word: "Url:", Field: "url", Label: "The URL:"}, page.About{Word: "Name:", Field: "name", Label: "The name"}, page.About{Word: "lifetime", Field: "minutes"},
		page.About{Word: "MaxExpiration:", Field: "minutes", Label: "The lifetime"}, page.About{Word: "Jwks", Field: "keys", Label: "Keys"})
}

func (p *pages) issuers(v *page.Visit) (view.Page, error) {
	return p.issuersPage(v, issuerForm{}, "")
}

func (p *pages) issuersPage(v *page.Visit, f issuerForm, problem string) (view.Page, error) {
	list, err := p.OIDC.Issuers(v.Context(), v.Org.ID)
	if err != nil {
		return view.Page{}, err
	}
	wrong := issuerWrong(problem)
	return p.settingsPage(v, "issuers", wrong[""], issuers(issuersModel{at(v), list, f, wrong}))
}

func (p *pages) registerIssuer(v *page.Visit) (page.Answer, error) {
	f := formOf(v)
	life, err := f.lifetime()
	var made store.OIDCIssuer
	if err == nil {
		made, err = p.OIDC.Register(v.Context(), v.Who, v.Org, oidc.Registration{Name: f.Name, URL: f.URL, JWKS: []byte(f.Keys), MaxExpiration: life})
	}
	return page.Changed(v, err, at(v).path("issuers", made.ID), func(v *page.Visit, problem string) (view.Page, error) { return p.issuersPage(v, f, problem) })
}

// exchangeForm names a token that an issuer's tokens can be exchanged for.
type exchangeForm struct{ Type, Pool, Subject, Permission string }

func exchangeOf(v *page.Visit) exchangeForm {
	return exchangeForm{v.Form("type"), v.Form("pool"), strings.TrimSpace(v.Form("subject")), v.Form("permission")}
}

// scope returns the scope of an exchange.
func (f exchangeForm) scope() string {
	switch oidc.TokenType(f.Type) {
	case oidc.RunnerToken:
		return "runner:" + f.Pool
	case oidc.TeamToken:
		return "team:" + f.Subject
	case oidc.PersonalToken:
		return "user:" + f.Subject
	default:
		if f.Permission == "admin" {
			return f.Permission
		}
		return ""
	}
}

// policy returns a policy about the token.
func (f exchangeForm) policy(decision string, rules []string) (oidc.Policy, error) {
	p := oidc.Policy{Decision: decision, TokenType: oidc.TokenType(f.Type), Rules: map[string]string{}}
	switch p.TokenType {
	case oidc.RunnerToken:
		p.RunnerID = f.Pool
	case oidc.TeamToken:
		p.TeamName = f.Subject
	case oidc.PersonalToken:
		p.UserLogin = f.Subject
	case oidc.OrganizationToken:
		p.AuthorizedPermissions = []string{"standard"}
		if f.Permission == "admin" {
			p.AuthorizedPermissions = append(p.AuthorizedPermissions, f.Permission)
		}
	}
	for _, line := range rules {
		claim, pattern, ok := strings.Cut(line, "=")
		claim = strings.TrimSpace(claim)
		if _, twice := p.Rules[claim]; !ok || twice {
			return p, fault.Invalid("Write each rule on its own line, as in: sub = system:serviceaccount:agents:*. A claim has at most one rule.")
		}
		p.Rules[claim] = strings.TrimSpace(pattern)
	}
	return p, nil
}

type issuerModel struct {
	place
	Issuer store.OIDCIssuer
	Set    oidc.PolicySet
	Pools  []view.Option
	// Policy, Decision and Rules are the form for a new policy.
	Policy          exchangeForm
	Decision, Rules string
	policyWrong     page.Wrong
	// Form is the form with which the issuer changes.
	Form  issuerForm
	wrong page.Wrong
	// Test is the form of a test, and Result its result; nil before a test.
	Test        exchangeForm
	Result      *oidc.Explanation
	testProblem string
}

// storedForm is the form with the values of an issuer.
func storedForm(i store.OIDCIssuer) issuerForm {
	f := issuerForm{Name: i.Name, Keys: i.JWKS}
	if i.MaxExpiration > 0 {
		f.Minutes = strconv.FormatInt(int64(i.MaxExpiration/time.Minute), 10)
	}
	return f
}

// subject returns what a policy's tokens are for, in words.
func (m issuerModel) subject(p oidc.Policy) string {
	switch p.TokenType {
	case oidc.RunnerToken:
		for _, o := range m.Pools {
			if o.Value == p.RunnerID {
				return "agents of the pool " + o.Text
			}
		}
		return "agents of the pool " + p.RunnerID
	case oidc.TeamToken:
		return "the team " + p.TeamName
	case oidc.PersonalToken:
		return "the user " + p.UserLogin
	default:
		return "the organization: " + cmp.Or(strings.Join(p.AuthorizedPermissions, ", "), "any")
	}
}

// rules returns the rules of a policy, by claim.
func rules(p oidc.Policy) []string {
	var out []string
	for _, claim := range slices.Sorted(maps.Keys(p.Rules)) {
		out = append(out, claim+" = "+p.Rules[claim])
	}
	return out
}

func (p *pages) issuer(v *page.Visit) (view.Page, error) {
	return p.issuerPage(v, "", func(*issuerModel) {})
}

func (p *pages) issuerPage(v *page.Visit, problem string, change func(*issuerModel)) (view.Page, error) {
	m := issuerModel{place: at(v), Decision: oidc.Allow}
	m.Policy.Type, m.Test.Type = string(oidc.RunnerToken), string(oidc.RunnerToken)
	var err error
	if m.Issuer, err = p.OIDC.Issuer(v.Context(), v.Org.ID, v.Param("issuer")); err != nil {
		return view.Page{}, err
	}
	if m.Set, err = p.OIDC.Policies(v.Context(), v.Org.ID, m.Issuer.ID); err != nil {
		return view.Page{}, err
	}
	list, _, err := p.Pools.List(v.Context(), v.Org.ID)
	if err != nil {
		return view.Page{}, err
	}
	for _, pool := range list {
		m.Pools = append(m.Pools, view.Option{Value: pool.ID, Text: pool.Name})
	}
	m.Form = storedForm(m.Issuer)
	change(&m)
	out, err := p.settingsPage(v, "issuers", problem, issuer(m))
	out.Title, out.Bar = m.Issuer.Name+" · "+v.Org.Name, nil
	out.Object = &view.Object{Icon: "shield", Project: "Issuers", Name: m.Issuer.Name, Facts: issuerFacts(m), Actions: issuerMenu(m)}
	return out, err
}

// changedIssuer answers after a change of the issuer of the path. wrong puts a problem into the forms; nil shows it above.
func (p *pages) changedIssuer(v *page.Visit, err error, wrong func(m *issuerModel, problem string)) (page.Answer, error) {
	return page.Changed(v, err, at(v).path("issuers", v.Param("issuer")), func(v *page.Visit, problem string) (view.Page, error) {
		if wrong == nil {
			return p.issuerPage(v, problem, func(*issuerModel) {})
		}
		return p.issuerPage(v, "", func(m *issuerModel) { wrong(m, problem) })
	})
}

func (p *pages) editIssuer(v *page.Visit) (page.Answer, error) {
	f := formOf(v)
	life, err := f.lifetime()
	if err == nil {
		_, err = p.OIDC.Update(v.Context(), v.Who, v.Org.ID, v.Param("issuer"), oidc.Change{Name: &f.Name, MaxExpiration: &life, JWKS: []byte(f.Keys)})
	}
	return p.changedIssuer(v, err, func(m *issuerModel, problem string) {
		m.Form, m.wrong = f, issuerWrong(problem)
		if other := m.wrong[""]; other != "" {
			m.wrong["name"] = other
		}
	})
}

func (p *pages) renewThumbprints(v *page.Visit) (page.Answer, error) {
	_, err := p.OIDC.RegenerateThumbprints(v.Context(), v.Who, v.Org.ID, v.Param("issuer"))
	return p.changedIssuer(v, err, nil)
}

func (p *pages) addPolicy(v *page.Visit) (page.Answer, error) {
	f, decision := exchangeOf(v), v.Form("decision")
	policy, err := f.policy(decision, v.Lines("rules"))
	if err == nil {
		err = p.OIDC.AddPolicy(v.Context(), v.Who, v.Org.ID, v.Param("issuer"), policy)
	}
	return p.changedIssuer(v, err, func(m *issuerModel, problem string) {
		m.Policy, m.Decision, m.Rules = f, decision, v.Form("rules")
		m.policyWrong = page.Locate(problem, page.About{Word: "rule", Field: "rules"}, page.About{Word: "team", Field: "subject"}, page.About{Word: "user", Field: "subject"})
	})
}

func (p *pages) removePolicy(v *page.Visit) (page.Answer, error) {
	version, err := strconv.ParseInt(v.Form("version"), 10, 64)
	index, failed := strconv.Atoi(v.Form("index"))
	if err != nil || failed != nil {
		return page.Answer{}, fault.Invalid("The form names no policy.")
	}
	return p.changedIssuer(v, p.OIDC.RemovePolicy(v.Context(), v.Who, v.Org.ID, v.Param("issuer"), version, index), nil)
}

// testToken shows what an exchange of an identity token would result in. It never shows the token.
func (p *pages) testToken(v *page.Visit) (page.Answer, error) {
	f := exchangeOf(v)
	result, err := p.OIDC.Explain(v.Context(), v.Org, v.Param("issuer"), strings.TrimSpace(v.Form("token")), oidc.TokenType(f.Type), f.scope())
	if err != nil {
		return p.changedIssuer(v, err, func(m *issuerModel, problem string) { m.Test, m.testProblem = f, problem })
	}
	shown, err := p.issuerPage(v, "", func(m *issuerModel) { m.Test, m.Result = f, &result })
	return page.Once(shown), err
}

func (p *pages) deleteIssuer(v *page.Visit) (page.Answer, error) {
	err := p.OIDC.Delete(v.Context(), v.Who, v.Org.ID, v.Param("issuer"))
	return page.See(at(v).path("issuers")), err
}
