package journal

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func created(operation, resource string) string {
	return `"kind":1,"operationID":` + operation + `,"state":` + resource
}

func quoted(names ...string) string {
	for i, name := range names {
		names[i] = `"` + urn(name) + `"`
	}
	return strings.Join(names, ",")
}

// TestReplayResources checks the replay rules one by one. The test tier "clients" compares them
// with the CLI's rules.
func TestReplayResources(t *testing.T) {
	a, b, c := resource("a"), resource("b"), resource("c")
	a2 := resource("a", `"later":{"x":1}`)
	flags := func(name string, flags ...string) string {
		for i, flag := range flags {
			flags[i] = `"` + flag + `":true`
		}
		return resource(name, flags...)
	}
	refresh := `"kind":3,"operationID":9`
	for _, tt := range []struct {
		name          string
		base, entries []string
		want          []string
	}{
		{"nothing changes", []string{a, b}, nil, []string{a, b}},
		{"new resources come first", []string{a}, []string{created("1", b), created("2", c)}, []string{b, c, a}},
		{"removes of the base", []string{a, b}, []string{created("1", b) + `,"removeOld":1`}, []string{b, a}},
		{"removes of the journal", nil, []string{created("1", a), created("2", b) + `,"removeNew":1`}, []string{b}},
		{
			"an operation that ends twice is removed once", nil,
			[]string{created("1", a), created("1", b), `"kind":1,"operationID":2,"removeNew":1`},
			[]string{a},
		},
		{"deletes of the base", []string{a}, []string{created("1", b) + `,"deleteOld":0`}, []string{b, flags("a", "delete")}},
		{
			"deletes of the journal", nil,
			[]string{created("1", a), created("2", b) + `,"deleteNew":1`},
			[]string{flags("a", "delete"), b},
		},
		{"deletes itself", nil, []string{created("1", a) + `,"deleteNew":1`}, []string{flags("a", "delete")}},
		{
			"replaces later in the base",
			[]string{a},
			[]string{`"kind":1,"operationID":1,"pendingReplacementOld":0`},
			[]string{flags("a", "pendingReplacement")},
		},
		{
			"replaces later in the journal", nil,
			[]string{created("1", a), `"kind":1,"operationID":2,"pendingReplacementNew":1`},
			[]string{flags("a", "pendingReplacement")},
		},
		{
			"sets an existing flag",
			[]string{resource("a", `"delete":false`, `"later":1`)},
			[]string{`"kind":1,"operationID":1,"deleteOld":0`},
			[]string{resource("a", `"delete":true`, `"later":1`)},
		},
		{"a failure changes nothing", []string{a}, []string{`"kind":2,"operationID":1,"removeOld":0,"removeNew":5,"state":` + b}, []string{a}},
		{"a refresh replaces in place", []string{a, b}, []string{refresh + `,"removeOld":0,"state":` + a2}, []string{a2, b}},
		{"a refresh removes", []string{a, b}, []string{refresh + `,"removeOld":0`}, []string{b}},
		{
			"a refresh replaces of the journal",
			[]string{b},
			[]string{created("1", a), refresh + `,"removeNew":1,"state":` + a2},
			[]string{a2, b},
		},
		{"a refresh removes of the journal", []string{b}, []string{created("1", a), refresh + `,"removeNew":1`}, []string{b}},
		{"outputs of the base", []string{a, b}, []string{`"kind":4,"removeOld":0,"state":` + a2}, []string{a2, b}},
		{"outputs of the journal", []string{b}, []string{created("1", a), `"kind":4,"removeNew":1,"state":` + a2}, []string{a2, b}},
		{"outputs without a state", []string{a}, []string{`"kind":4,"removeOld":0,"removeNew":5`}, []string{a}},
		{
			"removal wins over replacement",
			[]string{a, b},
			[]string{`"kind":1,"operationID":1,"removeOld":0`, refresh + `,"removeOld":0,"state":` + a2},
			[]string{b},
		},
		{
			"a replaced resource loses its flags",
			[]string{a},
			[]string{
				created("1", b) + `,"deleteOld":0,"deleteNew":1`, refresh + `,"removeOld":0,"state":` + a2,
				`"kind":4,"removeNew":1,"state":` + c,
			},
			[]string{c, a2},
		},
		{
			"a write replaces the base",
			[]string{a, b},
			[]string{`"kind":5,"newSnapshot":{"resources":[` + c + `]}`, created("1", a) + `,"deleteOld":0`},
			[]string{a, flags("c", "delete")},
		},
		{
			"a write keeps the journal's resources", nil,
			[]string{created("1", a), `"kind":5,"newSnapshot":{}`},
			[]string{a},
		},
		{
			"a rebuilt base has new indexes",
			[]string{a, b},
			[]string{refresh + `,"removeOld":0`, `"kind":7`, `"kind":1,"operationID":1,"deleteOld":0`},
			[]string{flags("b", "delete")},
		},
		{
			"a rebuilt base has neither old flags nor old replacements",
			[]string{a, b, c, resource("d")},
			[]string{
				`"kind":1,"operationID":1,"removeOld":0`, `"kind":4,"removeOld":1,"state":` + a2,
				`"kind":1,"operationID":2,"deleteOld":2`, `"kind":7`,
			},
			[]string{a2, flags("c", "delete"), resource("d")},
		},
		{
			"a rebuilt base is refreshed still", nil,
			[]string{refresh, `"kind":7`, created("1", resource("a", `"deletedWith":"gone"`))},
			[]string{a},
		},
		{
			"a refresh drops references to missing resources",
			[]string{
				a,
				resource("b", `"parent":"`+urn("a")+`"`, `"dependencies":[`+quoted("a", "c", "gone")+`]`,
					`"propertyDependencies":{"x":[`+quoted("gone", "a")+`],"y":[`+quoted("gone")+`],"z":[]}`,
					`"deletedWith":"`+urn("gone")+`"`, `"replaceWith":[`+quoted("gone")+`]`),
				resource("c", `"parent":"`+urn("gone")+`"`, `"deletedWith":"`+urn("a")+`"`, `"replaceWith":[`+quoted("b")+`]`),
				resource("gone"),
			},
			[]string{refresh + `,"removeOld":3`},
			[]string{
				a,
				resource("b", `"parent":"`+urn("a")+`"`, `"dependencies":[`+quoted("a")+`]`, `"propertyDependencies":{"x":[`+quoted("a")+`]}`),
				resource("c", `"deletedWith":"`+urn("a")+`"`, `"replaceWith":[`+quoted("b")+`]`),
			},
		},
		{
			"a persisted refresh drops them too",
			[]string{resource("b", `"dependencies":[`+quoted("gone")+`]`)},
			[]string{created("1", a) + `,"isRefresh":true`},
			[]string{a, b},
		},
		{
			"an update keeps them",
			[]string{resource("b", `"dependencies":[`+quoted("gone")+`]`)},
			[]string{created("1", a), `"kind":4,"removeNew":1,"state":` + a},
			[]string{a, resource("b", `"dependencies":[`+quoted("gone")+`]`)},
		},
		{
			"a parent may follow",
			[]string{resource("b", `"parent":"`+urn("a")+`"`), a},
			[]string{refresh},
			[]string{resource("b", `"parent":"`+urn("a")+`"`), a},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, r := range replay(t, state(tt.base...), tt.entries...).Resources {
				got = append(got, string(r))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReplayRenames(t *testing.T) {
	old := func(kind, name string) string { return "urn:pulumi:dev::shop::" + kind + "::" + name }
	group := `{"urn":"` + old("Group", "new") + `","aliases":["` + old("Group", "old") + `","` + old("Stack", "older") + `"]}`
	provider := old("pulumi:providers:test", "p")
	base := state(
		`{"urn":"`+provider+`","aliases":["`+provider+`-old"]}`,
		group,
		`{"urn":"`+old("Group$Thing", "child::x")+`","parent":"`+old("Group", "old")+`","provider":"`+provider+`-old::id"}`,
		`{"urn":"`+old("Other", "x")+`","aliases":[],"provider":"`+provider+`::id","deletedWith":"`+old("Group", "old")+
			`","viewOf":"`+old("Stack", "older")+`","dependencies":["`+old("Group", "old")+`"],"propertyDependencies":{"p":["`+
			old("Group", "old")+`"],"q":[]},"replaceWith":["`+old("Group", "old")+`"]}`,
		`{"urn":"`+old("Late", "x")+`","aliases":["`+old("Group", "old")+`"]}`,
	)
	base = strings.Replace(base, `"resources"`, `"snippets":[{"references":{"a":"`+old("Group", "old")+`","b":"x"}}],"resources"`, 1)
	base = strings.Replace(base, `"resources"`, `"pending_operations":[{"type":"creating","resource":{"urn":"`+old("Group", "old")+`"}}],"resources"`, 1)
	got := string(replay(t, base).document())
	want := state(
		`{"urn":"`+provider+`"}`,
		`{"urn":"`+old("Group", "new")+`"}`,
		`{"urn":"`+old("Group$Thing", "child::x")+`","parent":"`+old("Group", "new")+`","provider":"`+provider+`::id"}`,
		`{"urn":"`+old("Other", "x")+`","aliases":[],"provider":"`+provider+`::id","deletedWith":"`+old("Group", "new")+
			`","viewOf":"`+old("Group", "new")+`","dependencies":["`+old("Group", "new")+`"],"propertyDependencies":{"p":["`+
			old("Group", "new")+`"],"q":[]},"replaceWith":["`+old("Group", "old")+`"]}`,
		`{"urn":"`+old("Late", "x")+`"}`,
	)
	want = strings.Replace(want, `"resources"`, `"snippets":[{"references":{"a":"`+old("Group", "new")+`","b":"x"}}],"resources"`, 1)
	want = strings.Replace(want, `"resources"`, `"pending_operations":[{"type":"creating","resource":{"urn":"`+old("Group", "old")+`"}}],"resources"`, 1)
	want = strings.Replace(want, `{"version":3`, `{"version":4,"features":["replaceWith","snippets-prototype","views"]`, 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

// TestReplayRenamesChildren checks that a child's URN contains its parent's new type.
func TestReplayRenamesChildren(t *testing.T) {
	u := func(rest string) string { return `"urn:pulumi:dev::shop::` + rest + `"` }
	got := replay(t, state(
		`{"urn":`+u("New::g")+`,"aliases":[`+u("Old::g")+`]}`,
		`{"urn":`+u("Old$Thing::a")+`,"parent":`+u("Old::g")+`}`,
		`{"urn":`+u("Old$Thing$Leaf::b")+`,"parent":`+u("Old$Thing::a")+`}`,
		`{"urn":`+u("pulumi:pulumi:Stack::s")+`,"aliases":[`+u("pulumi:pulumi:Stack::old")+`]}`,
		`{"urn":`+u("Top::c")+`,"parent":`+u("pulumi:pulumi:Stack::old")+`}`,
	))
	want := []string{
		`{"urn":` + u("New::g") + `}`,
		`{"urn":` + u("New$Thing::a") + `,"parent":` + u("New::g") + `}`,
		`{"urn":` + u("New$Thing$Leaf::b") + `,"parent":` + u("New$Thing::a") + `}`,
		`{"urn":` + u("pulumi:pulumi:Stack::s") + `}`,
		`{"urn":` + u("Top::c") + `,"parent":` + u("pulumi:pulumi:Stack::s") + `}`,
	}
	for i, r := range got.Resources {
		if diff := cmp.Diff(want[i], string(r)); diff != "" {
			t.Errorf("resource %d (-want +got):\n%s", i, diff)
		}
	}
}

func TestReplayMembers(t *testing.T) {
	operation := func(kind, name string) string { return `{"resource":` + resource(name) + `,"type":"` + kind + `"}` }
	begin := func(id, kind, name string) string {
		return `"kind":0,"operationID":` + id + `,"operation":` + operation(kind, name)
	}
	provider := `{"type":"service","state":{"a":1},"later":1}`
	for _, tt := range []struct {
		name, base string
		entries    []string
		want       string
	}{
		{"a new state", `null`, nil, `{` + testManifest + `}`},
		{"the manifest is new and others are kept", `{"later":1,"manifest":{"version":"v1","plugins":[]},"metadata":{"a":1}}`, nil, `{"later":1,` + testManifest + `,"metadata":{"a":1}}`},
		{
			"unfinished operations are pending", `{"pending_operations":[` + operation("creating", "x") + `,` + operation("deleting", "y") + `]}`,
			[]string{
				begin("1", "creating", "a"), begin("2", "updating", "b"), begin("3", "deleting", "c"), begin("4", "reading", "d"),
				`"kind":0,"operationID":5`, `"kind":1,"operationID":1`, `"kind":2,"operationID":3`, `"kind":3,"operationID":4`,
			},
			`{"pending_operations":[` + operation("updating", "b") + `,` + operation("creating", "x") + `],` + testManifest + `}`,
		},
		{"finished operations are not", `{"pending_operations":[` + operation("deleting", "y") + `]}`, nil, `{` + testManifest + `}`},
		{
			"outputs do not finish an operation", `{}`,
			[]string{begin("1", "creating", "a"), `"kind":4,"operationID":1`},
			`{` + testManifest + `,"pending_operations":[` + operation("creating", "a") + `]}`,
		},
		{
			"a rebuilt base keeps creating operations only", `{}`,
			[]string{begin("1", "creating", "a"), begin("2", "updating", "b"), `"kind":7`},
			`{` + testManifest + `,"pending_operations":[` + operation("creating", "a") + `]}`,
		},
		{"an equal secrets provider is kept", `{"secrets_providers":` + provider + `}`, []string{`"kind":6,"secretsProvider":{"state":{"a":1},"type":"service"}`}, `{"secrets_providers":` + provider + `,` + testManifest + `}`},
		{"another secrets provider", `{"secrets_providers":` + provider + `}`, []string{`"kind":6,"secretsProvider":{"type":"service","state":{"a":2}}`}, `{"secrets_providers":{"type":"service","state":{"a":2}},` + testManifest + `}`},
		{"another type of secrets provider", `{"secrets_providers":` + provider + `}`, []string{`"kind":6,"secretsProvider":{"type":"passphrase","state":{"a":1}}`}, `{"secrets_providers":{"type":"passphrase","state":{"a":1}},` + testManifest + `}`},
		{"no secrets provider", `{"secrets_providers":` + provider + `}`, []string{`"kind":6`}, `{"secrets_providers":` + provider + `,` + testManifest + `}`},
		{"extensions of the base win", `{"extensions":{"x":{"v":1},"y":{"v":1}}}`, []string{
			`"kind":8,"extensionRef":"x","extension":{"v":2}`, `"kind":8,"extensionRef":"z","extension":{"v":2}`, `"kind":8,"extensionRef":"z","extension":{"v":3}`,
		}, `{"extensions":{"x":{"v":1},"z":{"v":3},"y":{"v":1}},` + testManifest + `}`},
		{"a rebuilt base owns the extensions", `{}`, []string{
			`"kind":8,"extensionRef":"x","extension":{"v":1}`, `"kind":7`, `"kind":5,"newSnapshot":{}`,
		}, `{` + testManifest + `}`},
		{"snippets are removed", `{"snippets":[{"uuid":"1"}]}`, []string{`"kind":9`}, `{` + testManifest + `}`},
		{"a write replaces the members", `{"metadata":{"a":1}}`, []string{`"kind":5,"newSnapshot":{"secrets_providers":null,"later":2}`}, `{"secrets_providers":null,"later":2,` + testManifest + `}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := string(replay(t, `{"deployment":`+tt.base+`}`, tt.entries...).document())
			if diff := cmp.Diff(`{"version":3,"deployment":`+tt.want+`}`, got); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReplayFeatures(t *testing.T) {
	snippets := `"kind":9,"snippets":[{"uuid":"1"}]`
	for _, tt := range []struct{ entries, want string }{
		{created("1", resource("a")), ""},
		{created("1", resource("a", `"refreshBeforeUpdate":true`)), "refreshBeforeUpdate"},
		{created("1", resource("a", `"viewOf":"x"`)), "views"},
		{created("1", resource("a", `"resourceHooks":{"a":[]}`)), "hooks"},
		{created("1", resource("a", `"taint":true`)), "taint"},
		{created("1", resource("a", `"replaceWith":["x"]`)), "replaceWith"},
		{created("1", resource("a", `"extensionRef":"x"`)), "extensionParameterization"},
		{created("1", resource("a", `"snippetID":"x"`)), "snippets-prototype"},
		{created("1", resource("a", `"taint":false`, `"viewOf":""`, `"replaceWith":[ ]`, `"resourceHooks":{}`, `"snippetID":null`)), ""},
		{created("1", resource("a")) + `,"requiresByteString":true`, "byteString"},
		{`"kind":0,"operationID":1,"operation":{"resource":` + resource("a", `"taint":true`) + `,"type":"updating"}`, "taint"},
		{`"kind":2,"requiresByteString":true`, ""},
		{snippets, "snippets-prototype"},
		{`"kind":2,"requiresByteString":true|"kind":7|` + created("1", resource("a")), "byteString"},
		{`"kind":3|` + created("1", resource("a", `"replaceWith":["gone"]`)), "replaceWith"},
	} {
		d := replay(t, `{"version":4,"features":["old"],"deployment":{}}`, strings.Split(tt.entries, "|")...)
		version := int64(3)
		if tt.want != "" {
			version = 4
		}
		if got := strings.Join(d.Features, ","); got != tt.want || d.Version != version {
			t.Errorf("%s: the state has version %d and features %q, want %d and %q", tt.entries, d.Version, got, version, tt.want)
		}
	}
}
