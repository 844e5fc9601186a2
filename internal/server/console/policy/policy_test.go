package policy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/policies"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

type m = map[string]any

const hostile = "<b onclick=x>\x1b[31m\u202egnp.exe"

// obey adds a pack that all stacks must obey.
func obey(t *testing.T, s *consoletest.Server, name string) {
	t.Helper()
	must.OK(t, s.DB().Write(t.Context(), scope.Server(), func(tx *store.Tx) error {
		o, err := tx.OrganizationByName(consoletest.Org)
		if err != nil {
			return err
		}
		pack := storetest.PolicyPack{Name: name, Tags: []string{"1.0.0"}, Levels: []store.PolicyLevel{{Name: "tags", Level: "mandatory"}, {Name: "later", Level: "advisory"}}}
		if err := pack.Add(tx, o.ID); err != nil {
			return err
		}
		g := store.PolicyGroup{ID: name, OrgID: o.ID, Name: "prod-" + name, EntityType: policies.Stacks, Mode: policies.Preventative, AllStacks: true}
		return pack.Require(tx, g, "1.0.0", "")
	}))
}

func events(t *testing.T, list ...m) (out []json.RawMessage) {
	t.Helper()
	for i, e := range list {
		e["sequence"], e["timestamp"] = i, 1_000_000_000
		out = append(out, must.Get(json.Marshal(e))(t))
	}
	return out
}

func violation(policy, level, name, message string) m {
	return m{"policyEvent": m{
		"resourceUrn": "urn:pulumi:prod::web::aws:s3/bucket:Bucket::" + name, "message": "<{%fg 1%}>" + message + "<{%reset%}>\n", "color": "raw", "policyName": policy,
		"policyPackName": "aws", "policyPackVersion": "1.0.0", "policyPackVersionTag": "1.0.0", "enforcementLevel": level, "severity": "high",
		"exceptions": []m{{"id": "EXC-7", "reason": hostile}},
	}}
}

func summary(packs m) m {
	return m{"summaryEvent": m{"resourceChanges": m{"same": 1}, "PolicyPacks": packs}}
}

// page opens a page, which must contain texts in this order.
func page(t *testing.T, b *consoletest.Browser, path string, wants ...string) {
	t.Helper()
	p := b.Get(path)
	text := p.Text()
	if p.Status != 200 || p.Contains("<b onclick") || strings.ContainsAny(p.Body, "\x1b\u202e") || p.Contains("{%") {
		t.Errorf("%s: status %d, or the page contains HTML or controls of a message", path, p.Status)
	}
	rest := text
	for _, want := range wants {
		at := strings.Index(rest, want)
		if at < 0 {
			t.Errorf("%s lacks %q after the texts before: %s", path, want, text)
			return
		}
		rest = rest[at+len(want):]
	}
}

// TestPages shows violations with hostile texts on the pages of an update and a stack, and that an update was not
// evaluated on these and in the list of stacks.
func TestPages(t *testing.T) {
	s := consoletest.New(t)
	s.Stack("web", "prod")
	obey(t, s, "aws")
	s.RunUpdate(consoletest.Update{Stack: "web/prod", Kind: "update", Result: "failed", Events: events(t,
		violation("size", "advisory", hostile, "too big"), violation("tags", "mandatory", "logs", hostile+"\nsecond line"), summary(m{"aws": "1.0.0"}))})
	b := s.SignIn()
	page(t, b, "/acme/web/prod/updates/1", "Policy: 1 mandatory violation and 1 advisory violation.", "Show policy")
	page(t, b, "/acme/web/prod/updates/1?view=policy", "Policy packs", "aws 1.0.0", "2 violations, required by the group prod-aws", "Violations",
		"aws tags", "aws:s3/bucket:Bucket logs: <b onclick=x>", "second line", "high", "mandatory, not an exception of this organization: EXC-7", "aws size", "too big")
	page(t, b, "/acme/web/prod", "Policy 2 open issues", "aws 1.0.0", "preventative, group prod-aws", "tags", "logs: <b onclick=x>", "size")

	obey(t, s, "gcp")
	s.RunUpdate(consoletest.Update{Stack: "web/prod", Kind: "preview", Result: "succeeded", Events: events(t,
		m{"policyAnalyzeSummaryEvent": m{"resourceUrn": "u", "policyPackName": "aws", "passed": []string{"tags"}}}, summary(m{"aws": "1", "gcp": "1"}))})
	preview := must.Get(store.Read(t.Context(), s.DB(), func(tx *store.Tx) (string, error) {
		st, err := tx.StackByName(consoletest.Org, "web", "prod")
		if err != nil {
			return "", err
		}
		list, err := tx.UpdatesOfStack(store.UpdateFilter{StackID: st.ID, Previews: true, Limit: 1})
		if err != nil || len(list) == 0 {
			return "", err
		}
		return list[0].ID, nil
	}))(t)
	page(t, b, "/acme/web/prod/previews/"+preview+"?view=policy", "Not known in this preview: aws later", "gcp tags, gcp later", "no violation, required by")

	s.RunUpdate(consoletest.Update{Stack: "web/prod", Kind: "update", Result: "succeeded", Events: events(t, summary(m{"aws": "1.0.0"}))})
	page(t, b, "/acme/web/prod/updates/2", "not evaluated", "Not evaluated: without the required policy packs: gcp.")
	page(t, b, "/acme/web/prod/updates/2?view=policy", "Not evaluated. The client ended without these required policy packs: gcp. Clients enforce policies", "gcp 1.0.0", "not evaluated, required by the group prod-gcp")
	page(t, b, "/acme/web/prod", "Not evaluated. The last update ended without a required policy pack.")
	page(t, b, "/acme/-/stacks", "prod", "not evaluated")

	s.RunUpdate(consoletest.Update{Stack: "web/prod", Kind: "update", Result: "succeeded", Events: events(t, summary(m{"aws": "1.0.0", "gcp": "1.0.0"}))})
	if p := b.Get("/acme/-/stacks"); p.Contains("not evaluated") {
		t.Error("the list says that the stack was not evaluated, after an update with all packs")
	}
}
