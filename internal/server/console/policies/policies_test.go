package policies_test

import (
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/consoletest"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/dev/storetest"
	"workflowagent/internal/server/store"
	"workflowagent/internal/server/store/scope"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

const (
	base    = "/acme/-/policies"
	hostile = "<script>alert(1)</script> \u202eexe.txt"
)

type fixture struct {
	t *testing.T
	*consoletest.Server
	admin, member *consoletest.Browser
	org           store.Organization
}

const schema = `{"type":"object","required":["max"],"properties":{"enforcementLevel":{"type":"string"},"max":{"type":"integer"},"size":{"enum":["s","m"]}}}`

// newFixture returns a server with the pack aws in two versions, the pack gcp, and two stacks.
func newFixture(t *testing.T, s *consoletest.Server) *fixture {
	t.Helper()
	f := &fixture{t: t, Server: s, admin: s.SignIn(), member: s.SignInWith(s.AddUser("ann", "member"))}
	for _, name := range []string{"prod", "dev"} {
		f.API(http.MethodPost, "/api/stacks/acme/web", map[string]string{"stackName": name}, nil)
	}
	f.write(func(tx *store.Tx) (err error) {
		f.org, err = tx.OrganizationByName("acme")
		return err
	})
	f.pack("aws", "1.0.0", "2.0.0")
	f.pack("gcp", "")
	return f
}

func (f *fixture) write(fn func(tx *store.Tx) error) {
	f.t.Helper()
	must.OK(f.t, f.DB().Write(f.t.Context(), scope.Server(), fn))
}

// pack adds a pack with versions, whose texts are hostile.
func (f *fixture) pack(name string, tags ...string) {
	f.t.Helper()
	text := strings.ReplaceAll(hostile, "\u202e", `\u202e`)
	pack := storetest.PolicyPack{
		Name: name, DisplayName: hostile, Tags: tags, Runtime: "nodejs", Details: `{"description":"` + text + `","readme":"# Read me\n` + text + `"}`, By: "ada" + hostile,
		Policies: `[{"name":"no-public","displayName":"` + text + `","description":"` + text + `","enforcementLevel":"mandatory","severity":"high","configSchema":` + schema + `},
			{"name":"tags","enforcementLevel":"advisory"}]`,
		Levels: []store.PolicyLevel{{Name: "no-public", Level: "mandatory"}, {Name: "tags", Level: "advisory"}},
	}
	f.write(func(tx *store.Tx) error { return pack.Add(tx, f.org.ID) })
}

var title = regexp.MustCompile(`title="[^"]*\x{202e}[^"]*"`)

// safe fails the test if a page contains markup of others, or controls that make a text look like another one.
func (f *fixture) safe(path string, p consoletest.Page) consoletest.Page {
	f.t.Helper()
	if strings.Contains(p.Body, "<script>alert") {
		f.t.Errorf("%s contains markup of others", path)
	}
	for _, found := range title.FindAllString(p.Body, -1) {
		f.t.Errorf("%s contains %q", path, found)
	}
	return p
}

func (f *fixture) get(b *consoletest.Browser, path string, texts ...string) consoletest.Page {
	f.t.Helper()
	p := b.Get(path)
	if p.Status != http.StatusOK {
		f.t.Fatalf("GET %s: status %d: %s", path, p.Status, p.Text())
	}
	f.shows(path, p, texts...)
	return f.safe(path, p)
}

func (f *fixture) post(b *consoletest.Browser, path string, want int, fields ...string) consoletest.Page {
	f.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	p := b.Post(path, form)
	if p.Status != want {
		f.t.Fatalf("POST %s %v: status %d, want %d: %s", path, fields, p.Status, want, p.Text())
	}
	return f.safe(path, p)
}

func (f *fixture) shows(path string, p consoletest.Page, texts ...string) {
	f.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.Text(), text) && !p.Contains(text) {
			f.t.Errorf("%s lacks %q: %s", path, text, p.Text())
		}
	}
}

func (f *fixture) hides(path string, p consoletest.Page, texts ...string) {
	f.t.Helper()
	for _, text := range texts {
		if p.Contains(text) || strings.Contains(p.Text(), text) {
			f.t.Errorf("%s contains %q: %s", path, text, p.Text())
		}
	}
}

func TestPacks(t *testing.T) {
	consoletest.Each(t, func(t *testing.T, s *consoletest.Server) {
		f := newFixture(t, s)
		f.post(f.admin, base+"/groups/default-policy-group/packs/gcp", http.StatusSeeOther, "do", "save", "state", "")
		f.get(f.member, base, "aws no group 2.0.0 2 policies", "gcp default-policy-group 1 2 policies")
		p := f.get(f.member, base+"?q=AW", "aws")
		f.hides(base, p, "packs/gcp")
		f.get(f.member, base+"?q=none", "No pack matches")

		const aws = base + "/packs/aws"
		p = f.get(f.member, aws, "2.0.0", "newest", "mandatory", "No group requires the pack", "# Read me", "published by")
		f.hides(aws, p, "/remove")
		p = f.get(f.admin, aws+"?version=1.0.0", "1.0.0", aws+"/remove")
		f.hides(aws, p, ">newest<")
		f.get(f.member, base+"/packs/gcp", "Required by", "default-policy-group")
		if p := f.member.Get("/acme/insights/policypacks/aws/1.0.0"); p.Location() != aws+"?version=1.0.0" {
			t.Errorf("the address that the CLI prints leads to %q", p.Location())
		}

		f.post(f.member, aws+"/remove", http.StatusForbidden, "version", "1.0.0")
		if p := f.post(f.admin, aws+"/remove", http.StatusSeeOther, "version", "2.0.0"); p.Location() != aws {
			t.Errorf("after the removal of a version: %q", p.Location())
		}
		f.get(f.member, aws, "1.0.0", "newest")
		f.shows("gcp", f.post(f.admin, base+"/packs/gcp/remove", http.StatusUnprocessableEntity), "is enabled in the policy groups default-policy-group")
		if p := f.post(f.admin, aws+"/remove", http.StatusSeeOther); p.Location() != base {
			t.Errorf("after the removal of a pack: %q", p.Location())
		}
		if p := f.member.Get(aws); p.Status != http.StatusNotFound {
			t.Errorf("a removed pack: status %d", p.Status)
		}
		f.AgeSessions(16 * time.Minute)
		f.get(f.admin, base+"/packs/gcp", "Sign in again")
	})
}

func TestNoPacks(t *testing.T) {
	s := consoletest.New(t)
	f := &fixture{t: t, Server: s, admin: s.SignIn()}
	f.get(f.admin, base, "The organization has no policy pack", "pulumi policy publish acme")
	f.get(f.admin, base+"/groups", "default-policy-group no pack preventative")
}

func TestGroups(t *testing.T) {
	consoletest.Each(t, func(t *testing.T, s *consoletest.Server) {
		f := newFixture(t, s)
		const groups, prod = base + "/groups", base + "/groups/prod"
		f.shows(groups, f.post(f.admin, groups, http.StatusUnprocessableEntity, "name", "a/b", "mode", "audit"), "The name of a policy group must", `value="a/b"`)
		f.post(f.member, groups, http.StatusForbidden, "name", "prod", "mode", "preventative")
		f.post(f.admin, groups, http.StatusSeeOther, "name", "prod", "mode", "preventative")
		p := f.get(f.member, groups, "prod no pack preventative 0 stacks those that were added", "default-policy-group no pack preventative 2 stacks all that have not left")
		f.hides(groups, p, "New group")

		p = f.get(f.member, prod, "The group requires no pack", "The group has no stack that you can see")
		f.hides(prod, p, "<form method=\"post\" action=\""+prod)
		f.shows(prod, f.post(f.admin, prod+"/stacks", http.StatusUnprocessableEntity, "stack", "web/none", "action", "add"), "web/none", "you may not see it")
		f.post(f.admin, prod+"/stacks", http.StatusSeeOther, "stack", "web/prod", "action", "add")
		f.get(f.member, prod, "1 stack", "/acme/web/prod")
		f.post(f.admin, prod+"/stacks", http.StatusSeeOther, "stack", "web/prod", "action", "remove")
		f.get(f.admin, prod, "Removed web/prod from prod. Undo", `<input type="hidden" name="action" value="add">`, `<option value="web/dev">`)
		f.get(f.member, prod, "0 stacks", "The group has no stack that you can see")

		if p := f.admin.Get(prod + "/packs?pack=aws"); p.Location() != prod+"/packs/aws" {
			t.Errorf("after a pack was chosen: %q", p.Location())
		}
		if p := f.admin.Get(prod + "/packs/none"); p.Status != http.StatusNotFound {
			t.Errorf("an unknown pack: status %d", p.Status)
		}
		f.get(f.admin, prod+"/packs/aws", "does not require this pack yet", "1 change Version", `<option value="2.0.0" selected>`)
		f.get(f.member, prod, "The group requires no pack")
		f.shows(prod, f.post(f.admin, prod+"/packs/aws", http.StatusOK, "version", "2.0.0"), "Review 1 change of aws in prod", "Version was not required becomes 2.0.0", `value="save"`)
		f.get(f.member, prod, "The group requires no pack")
		f.post(f.admin, prod+"/packs/aws", http.StatusSeeOther, "version", "2.0.0", "do", "save")
		f.get(f.member, prod, "aws levels of the pack 2.0.0", base+"/packs/aws?version=2.0.0")
		f.get(f.member, groups, "prod aws 2.0.0 preventative")

		f.post(f.admin, prod+"/edit", http.StatusSeeOther, "name", "production", "pool", "")
		const renamed = groups + "/production"
		f.shows(renamed, f.post(f.admin, renamed+"/edit", http.StatusUnprocessableEntity, "name", "default-policy-group", "pool", ""), "already has a policy group")
		f.post(f.admin, renamed+"/packs/aws/remove", http.StatusSeeOther)
		f.get(f.member, renamed, "The group requires no pack")
		f.post(f.member, renamed+"/delete", http.StatusForbidden)
		f.post(f.admin, renamed+"/delete", http.StatusSeeOther)
		if p := f.member.Get(renamed); p.Status != http.StatusNotFound {
			t.Errorf("a deleted group: status %d", p.Status)
		}
		f.shows(groups, f.post(f.admin, groups+"/default-policy-group/delete", http.StatusUnprocessableEntity), "cannot be deleted")
	})
}

// TestGroupsHideStacks tests that members do not see the stacks of a group which they may not read, nor their number.
func TestGroupsHideStacks(t *testing.T) {
	consoletest.Each(t, func(t *testing.T, s *consoletest.Server) {
		f := newFixture(t, s)
		f.API(http.MethodPatch, "/api/orgs/acme", map[string]any{"setDefaultStackPermission": 0}, nil)
		f.API(http.MethodPut, "/api/stacks/acme/web/dev/collaborators/ann", map[string]any{"permission": 101}, nil)
		const group = base + "/groups/default-policy-group"
		p := f.get(f.member, group, "/acme/web/dev")
		f.hides(group, p, "/acme/web/prod", "left: 2")
		f.hides(base+"/groups", f.get(f.member, base+"/groups"), "2 stacks")
		f.get(f.admin, group, "/acme/web/dev", "/acme/web/prod")
	})
}

func TestConfig(t *testing.T) {
	f := newFixture(t, consoletest.New(t))
	const group = base + "/groups/default-policy-group"
	const form = group + "/packs/aws"
	f.post(f.admin, form, http.StatusSeeOther, "do", "save")
	if p := f.member.Get(form); p.Status != http.StatusForbidden {
		t.Errorf("a member: status %d", p.Status)
	}
	f.get(f.admin, form, "2.0.0 (required now)", "max (integer), required; size", "Level of no-public")
	for config, want := range map[string]string{
		`{"max": }`:                             "This is not a JSON object: line 1: invalid character",
		`[1]`:                                   "This is not a JSON object.",
		`{} {}`:                                 "more than one JSON object",
		`{"size":"s"}`:                          "max is missing",
		`{"max":"` + hostile + `"}`:             "max must be of the type integer.",
		`{"max":1.5}`:                           "max must be of the type integer.",
		`{"max":1,"size":"xl"}`:                 "size must be one of s m.",
		`{"max":1,"enforcementLevel":"strict"}`: "Choose the level above",
	} {
		p := f.post(f.admin, form, http.StatusUnprocessableEntity, "version", "2.0.0", "config-0", config, "level-1", "disabled")
		f.shows(config, p, want, `id="config-0" name="config-0" rows="4" spellcheck="false" aria-invalid="true"`)
		if !strings.Contains(p.Body, `<option value="disabled" selected>`) {
			t.Errorf("%s: the page loses what was chosen: %s", config, p.Text())
		}
	}
	f.shows(form, f.post(f.admin, form, http.StatusUnprocessableEntity, "version", "2.0.0", "level-1", "strict"), `The enforcement level of policy "tags" must be`, `aria-invalid="true"`)
	sent := []string{"version", "1.0.0", "level-all", "advisory", "level-0", "mandatory", "config-0", `{"max":3,"size":"m"}`}
	review := f.post(f.admin, form, http.StatusOK, sent...)
	f.shows(form, review, "Review 4 changes of aws in default-policy-group", "Version was 2.0.0 becomes 1.0.0", "Level of all policies was as the pack says becomes advisory", `Configuration of no-public was none becomes {"max":3,"size":"m"}`)
	f.get(f.admin, form, "2.0.0 (required now)")
	state := regexp.MustCompile(`name="state" value="([^"]+)"`).FindStringSubmatch(review.Body)
	if state == nil {
		t.Fatalf("the review has no state: %s", review.Text())
	}
	f.shows(form, f.post(f.admin, form, http.StatusOK, append(sent, "do", "back")...), `<option value="advisory" selected>`)
	f.shows(form, f.post(f.admin, form, http.StatusUnprocessableEntity, append(sent, "do", "save", "state", "1")...), "has changed since you opened the page", `<option value="advisory" selected>`)
	f.get(f.admin, form, "2.0.0 (required now)")
	f.post(f.admin, form, http.StatusSeeOther, append(sent, "do", "save", "state", state[1])...)
	f.shows(form, f.post(f.admin, form, http.StatusOK, sent...), "Nothing changes")
	f.get(f.admin, form, "1.0.0 (required now)", "&#34;max&#34;: 3")
	f.get(f.member, group, "aws 2 policies configured 1.0.0")
	var got struct {
		AppliedPolicyPacks []struct {
			VersionTag string
			Config     map[string]map[string]any
		}
	}
	f.API(http.MethodGet, "/api/orgs/acme/policygroups/default-policy-group", nil, &got)
	if len(got.AppliedPolicyPacks) != 1 || got.AppliedPolicyPacks[0].VersionTag != "1.0.0" ||
		got.AppliedPolicyPacks[0].Config["all"]["enforcementLevel"] != "advisory" || got.AppliedPolicyPacks[0].Config["no-public"]["max"] != 3.0 {
		t.Errorf("the group has %+v", got)
	}
	f.shows(form, f.post(f.admin, form, http.StatusUnprocessableEntity, append(sent, "environments", "app/none")...), "Organization acme has no environment app/none", ">app/none</textarea>")
	f.API(http.MethodPost, "/api/esc/environments/acme", map[string]string{"project": "app", "name": "cis"}, nil)
	review = f.post(f.admin, form, http.StatusOK, append(sent, "environments", "app/cis,app/cis@1")...)
	f.shows(form, review, "Review 1 change of aws", "Environments was none becomes app/cis app/cis@1")
	state = regexp.MustCompile(`name="state" value="([^"]+)"`).FindStringSubmatch(review.Body)
	f.post(f.admin, form, http.StatusSeeOther, append(sent, "environments", "app/cis\napp/cis@1", "do", "save", "state", state[1])...)
	f.get(f.admin, form, "app/cis app/cis@1")
}
