package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStackLife(t *testing.T) {
	f := newFixture(t, options{})
	f.do("HEAD", "/api/stacks/acme/proj", nil).statusOnly(404)
	path := "/api/stacks/acme/proj/dev"
	f.do("GET", path, nil).want(404, nil)
	f.do("POST", "/api/stacks/acme/proj", map[string]any{"stackName": "dev", "tags": map[string]string{"a": "b"}}).want(200, nil)
	f.do("HEAD", "/api/stacks/acme/proj", nil).statusOnly(200)
	f.do("POST", "/api/stacks/acme/proj", map[string]any{"stackName": "dev"}).want(409, nil).says("already exists")
	for _, bad := range []string{"", "a/b", "a b", "..", string(make([]byte, 200))} {
		f.do("POST", "/api/stacks/acme/proj", map[string]any{"stackName": bad}).want(400, nil)
	}
	var got struct {
		OrgName, ProjectName, StackName, ActiveUpdate string
		Version                                       int
		Tags                                          map[string]string
	}
	f.do("GET", path, nil).want(200, &got)
	if got.OrgName != "acme" || got.ProjectName != "proj" || got.StackName != "dev" || got.ActiveUpdate != "" {
		t.Errorf("stack = %+v", got)
	}
	if diff := cmp.Diff(map[string]string{"a": "b", "pulumi:project": "proj"}, got.Tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	f.do("GET", path+"/", nil).want(200, nil)
	f.do("GET", path+"/updates/latest", nil).want(404, nil)
	if b := f.do("GET", path+"/export", nil).want(200, nil).Body; string(b) != `{"version":3,"deployment":null}` {
		t.Errorf("export of an empty stack = %s", b)
	}
	f.do("GET", path+"/metadata", nil).want(200, nil)
	f.do("DELETE", path, nil).want(204, nil)
	f.do("GET", path, nil).want(404, nil)
}

func (a answer) statusOnly(status int) {
	a.t.Helper()
	if a.Status != status {
		a.t.Errorf("%s: status %d, want %d", a.call, a.Status, status)
	}
}

func TestDeletingNeedsAnEmptyStackOrForce(t *testing.T) {
	f := newFixture(t, options{})
	for _, query := range []string{"?force=true", "?forceDestroy=true"} {
		path := f.stack("dev")
		f.do("POST", path+"/import", state(1)).want(200, nil)
		var e struct{ Message string }
		f.do("DELETE", path, nil).want(400, &e)
		if e.Message != "Bad Request: Stack still contains resources." {
			t.Errorf("message = %q", e.Message)
		}
		f.do("DELETE", path+query, nil).want(204, nil)
	}
	f.do("DELETE", f.stack("dev")+"?force=perhaps", nil).want(400, nil)
}

func TestTags(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	tags := func() map[string]string {
		t.Helper()
		var s struct{ Tags map[string]string }
		f.do("GET", path, nil).want(200, &s)
		delete(s.Tags, "pulumi:project")
		return s.Tags
	}
	f.do("PATCH", path+"/tags", map[string]string{"a": "1", "pulumi:runtime": "yaml"}).want(204, nil)
	f.do("PATCH", path+"/tags", map[string]string{"b": "2", "pulumi:runtime": "yaml"}).want(204, nil)
	if diff := cmp.Diff(map[string]string{"b": "2", "pulumi:runtime": "yaml"}, tags()); diff != "" {
		t.Errorf("PATCH replaces all tags (-want +got):\n%s", diff)
	}
	f.do("PATCH", path+"/tags", map[string]string{"pulumi:project": "other"}).want(400, nil)
	f.do("POST", path+"/tags", map[string]string{"name": "c", "value": "3"}).want(204, nil)
	f.do("POST", path+"/tags", map[string]string{"name": "c", "value": "4"}).want(400, nil)
	f.do("PATCH", path+"/tags/c", map[string]string{"value": "5"}).want(204, nil)
	f.do("PATCH", path+"/tags/pulumi:runtime", map[string]string{"value": "go"}).want(400, nil)
	f.do("DELETE", path+"/tags/pulumi:runtime", nil).want(400, nil)
	f.do("DELETE", path+"/tags/b", nil).want(204, nil)
	f.do("DELETE", path+"/tags/b", nil).want(404, nil)
	f.do("PATCH", path+"/tags/b", map[string]string{"value": "5"}).want(404, nil)
	f.do("POST", path+"/tags", map[string]string{"name": "no spaces", "value": "3"}).want(400, nil)
	if diff := cmp.Diff(map[string]string{"c": "5", "pulumi:runtime": "yaml"}, tags()); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
}

func TestListingStacks(t *testing.T) {
	f := newFixture(t, options{})
	for i := range 5 {
		f.stack(fmt.Sprintf("s%d", i))
	}
	f.do("POST", "/api/stacks/acme/proj/s3/tags", map[string]string{"name": "env", "value": "prod"}).want(204, nil)
	list := func(query string) []string {
		t.Helper()
		var names []string
		token := ""
		for {
			var page struct {
				Stacks            []struct{ StackName string }
				ContinuationToken string
			}
			f.do("GET", "/api/user/stacks?"+query+"&continuationToken="+token, nil).want(200, &page)
			for _, s := range page.Stacks {
				names = append(names, s.StackName)
			}
			if token = page.ContinuationToken; token == "" {
				return names
			}
		}
	}
	all := []string{"s0", "s1", "s2", "s3", "s4"}
	for query, want := range map[string][]string{
		"": all, "maxResults=2": all, "organization=acme": all, "organization=none": nil, "project=none": nil,
		"tagName=env": {"s3"}, "tagName=env&tagValue=dev": nil, "tagName=env&tagValue=prod": {"s3"},
	} {
		if got := list(query); !slices.Equal(got, want) {
			t.Errorf("stacks with %q = %v, want %v", query, got, want)
		}
	}
	f.do("GET", "/api/user/stacks?maxResults=x", nil).want(400, nil)
	f.do("GET", "/api/user/stacks?continuationToken=***", nil).want(400, nil)
}

func TestStoredConfig(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev") + "/config"
	f.do("GET", path, nil).want(404, nil)
	f.do("PUT", path, map[string]string{"environment": "", "secretsProvider": "p", "unknown": "ignored"}).want(200, nil)
	if b := f.do("GET", path, nil).want(200, nil).Body; string(b) != `{"environment":"","secretsProvider":"p"}` {
		t.Errorf("config = %s", b)
	}
	f.do("DELETE", path, nil).want(204, nil)
	f.do("GET", path, nil).want(404, nil)
}

// TestConfigurationInEnvironments creates stacks whose configuration is in an environment.
func TestConfigurationInEnvironments(t *testing.T) {
	f := newFixture(t, options{})
	environment := map[string]string{"environment": "proj/remote"}
	f.do("PUT", f.stack("dev")+"/config", environment).want(404, nil).says("'acme/proj/remote' does not exist")
	const stacks = "/api/stacks/acme/proj"
	f.do("POST", stacks, map[string]any{"stackName": "none", "config": map[string]string{"environment": "proj/remote@2"}}).want(404, nil)
	f.do("POST", stacks, map[string]any{"stackName": "none", "config": environment, "createManagedEnvironment": true}).want(400, nil)
	f.do("GET", stacks+"/none", nil).want(404, nil)
	f.do("POST", stacks, map[string]any{"stackName": "remote", "config": environment}).want(200, nil)
	f.do("GET", "/api/esc/environments/acme/proj/remote", nil).want(200, nil)
	f.do("PUT", stacks+"/dev/config", environment).want(200, nil)
	f.do("POST", stacks, map[string]any{"stackName": "shared", "config": environment}).want(200, nil)
	f.do("GET", stacks+"/shared/config", nil).want(200, nil).says(`{"environment":"proj/remote"}`)

	var made struct{ ManagedEnvironment string }
	if f.do("POST", stacks, map[string]any{"stackName": "remote-2", "createManagedEnvironment": true}).want(200, &made); made.ManagedEnvironment != "proj/remote-2" {
		t.Errorf("the stack manages the environment %q", made.ManagedEnvironment)
	}
	if f.do("GET", stacks+"/remote-2", nil).want(200, &made); made.ManagedEnvironment != "proj/remote-2" {
		t.Errorf("the stack manages the environment %q", made.ManagedEnvironment)
	}
	f.do("GET", "/api/esc/environments/acme/proj/remote-2", nil).want(200, nil).says("pulumiConfig: {}")
	f.do("POST", "/api/esc/environments/acme/proj/remote/drafts", nil).want(404, nil).says("approvals")
	f.do("GET", "/api/esc/environments/acme/proj/remote-2/drafts/none", nil).want(404, nil).says("no draft")
	f.do("POST", "/api/esc/environments/acme/proj/remote-2/drafts/none/open?revision=1", nil).want(404, nil).says("no revision 1")
	update := map[string]any{"name": "proj", "environment": map[string]any{"baseRevision": 1, "changeRequestID": "none", "draftRevision": 0}}
	f.do("POST", stacks+"/dev/update", update).want(400, nil).says("manages no environment")
	f.do("POST", stacks+"/remote-2/update", update).want(404, nil).says("no draft")
	f.do("DELETE", "/api/esc/environments/acme/proj/remote-2", nil).want(409, nil).says("stack acme/proj/remote-2")
}

func TestSecretsAreBytes(t *testing.T) {
	f := newFixture(t, options{})
	path, other := f.stack("dev"), f.stack("other")
	plain := []byte{0, 255, 254, '"', '\n', 0xC3, 0x28}
	var enc struct{ Ciphertext []byte }
	f.do("POST", path+"/encrypt", map[string][]byte{"plaintext": plain}).want(200, &enc)
	var dec struct{ Plaintext []byte }
	f.do("POST", path+"/decrypt", map[string][]byte{"ciphertext": enc.Ciphertext}).want(200, &dec)
	if diff := cmp.Diff(plain, dec.Plaintext); diff != "" {
		t.Errorf("plaintext (-want +got):\n%s", diff)
	}
	f.do("POST", other+"/decrypt", map[string][]byte{"ciphertext": enc.Ciphertext}).want(400, nil)
	f.do("POST", path+"/decrypt", map[string][]byte{"ciphertext": []byte("junk")}).want(400, nil)

	var batch struct{ Ciphertexts []string }
	f.send(call{Method: "POST", Path: path + "/batch-encrypt", Body: map[string]any{"plaintexts": [][]byte{plain, {}, []byte("x")}}, Gzip: true}).want(200, &batch)
	if len(batch.Ciphertexts) != 3 {
		t.Fatalf("batch-encrypt returned %d values, want 3", len(batch.Ciphertexts))
	}
	var out struct{ Plaintexts map[string]string }
	f.send(call{Method: "POST", Path: path + "/batch-decrypt", Body: map[string]any{"ciphertexts": batch.Ciphertexts}, Gzip: true}).want(200, &out)
	for i, want := range [][]byte{plain, {}, []byte("x")} {
		if got := out.Plaintexts[batch.Ciphertexts[i]]; got != base64.StdEncoding.EncodeToString(want) {
			t.Errorf("plaintext %d = %q", i, got)
		}
	}
	f.do("POST", path+"/batch-decrypt", map[string]any{"ciphertexts": []string{"%"}}).want(400, nil)
	f.do("POST", path+"/decrypt/log-decryption", map[string]any{"secretName": "x"}).want(204, nil)
	f.do("POST", path+"/decrypt/log-batch-decryption", map[string]any{"commandName": "x"}).want(204, nil)
}

func state(resources int) map[string]any {
	list := []any{}
	for i := range resources {
		list = append(list, map[string]any{"urn": fmt.Sprintf("urn:pulumi:dev::proj::a:b:C::r%d", i), "type": "a:b:C"})
	}
	return map[string]any{"version": 3, "deployment": map[string]any{"manifest": map[string]any{}, "resources": list}}
}

func TestExportReturnsWhatWasImported(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	first := `{"version":3,"deployment":{"resources":[{"urn":"urn:pulumi:dev::proj::a:b:C::r","n":12345678901234567890,"s":"\u0000 \"]}"}]}}`
	var imported struct{ UpdateID string }
	f.send(call{Method: "POST", Path: path + "/import", Body: first, Gzip: true}).want(200, &imported)
	var status map[string]any
	f.do("GET", path+"/update/"+imported.UpdateID, nil).want(200, &status)
	if status["status"] != "succeeded" || status["continuationToken"] != nil {
		t.Errorf("status of an import = %v", status)
	}
	second := `{"version":4,"features":["x"],"deployment":{"resources":[]}}`
	f.do("POST", path+"/import", second).want(200, nil)
	for p, want := range map[string]string{"/export": second, "/export/2": second, "/export/1": first} {
		if got := f.do("GET", path+p, nil).want(200, nil).Body; string(got) != want {
			t.Errorf("%s = %s, want %s", p, got, want)
		}
	}
	f.do("GET", path+"/export/3", nil).want(404, nil)
	f.do("GET", path+"/export/x", nil).want(400, nil)
	for _, bad := range []string{``, `{`, `[]x`, `{"version":"3","deployment":{}}`, `{"version":99,"deployment":{}}`, `{"version":3,"deployment":[]}`} {
		f.do("POST", path+"/import", bad).want(400, nil)
	}
}

func TestImportRefusesForeignSecrets(t *testing.T) {
	f := newFixture(t, options{})
	path, other := f.stack("dev"), f.stack("other")
	var enc struct{ Ciphertext []byte }
	f.do("POST", path+"/encrypt", map[string][]byte{"plaintext": []byte("x")}).want(200, &enc)
	body := map[string]any{"version": 3, "deployment": map[string]any{
		"secrets_providers": map[string]any{"type": "service", "state": map[string]string{"stack": "dev"}},
		"resources":         []any{map[string]any{"outputs": map[string]any{"p": map[string]any{"ciphertext": enc.Ciphertext}}}},
	}}
	f.do("POST", path+"/import", body).want(200, nil)
	f.do("POST", other+"/import", body).want(400, nil).says("different stack")
}

func TestRenameChangesTheNamesInTheState(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	f.stack("taken")
	const ref = `{"4dabf18193072939515e22adb298388d":"5cf8f73096256a8f31e491e813e4eb8e","urn":"urn:pulumi:dev::proj::a:b:C::r"}`
	body := `{"version":3,"deployment":{
		"secrets_providers":{"type":"service","state":{"url":"http://u","owner":"acme","project":"proj","stack":"dev"}},
		"resources":[
			{"urn":"urn:pulumi:dev::proj::pulumi:pulumi:Stack::proj-dev","type":"pulumi:pulumi:Stack"},
			{"urn":"urn:pulumi:dev::proj::a:b:C::r","parent":"urn:pulumi:dev::proj::pulumi:pulumi:Stack::proj-dev",
			 "dependencies":["urn:pulumi:dev::proj::a:b:C::s"],"propertyDependencies":{"x":["urn:pulumi:dev::proj::a:b:C::s"],"y":null},
			 "provider":"urn:pulumi:dev::proj::pulumi:providers:a::default::some-id","inputs":{"n":12345678901234567890,"ref":` + ref + `},
			 "outputs":{"text":"urn:pulumi:dev::proj::a:b:C::r"}},
			{"urn":"urn:pulumi:devil::proj::a:b:C::r"}],
		"pending_operations":[{"type":"creating","resource":{"urn":"urn:pulumi:dev::proj::a:b:C::p"}}]}}`
	f.do("POST", path+"/import", body).want(200, nil)
	f.do("POST", path+"/rename", map[string]string{"newName": "", "newProject": ""}).want(400, nil).says("No rename to apply.")
	f.do("POST", path+"/rename", map[string]string{"newName": "taken"}).want(409, nil)
	f.do("POST", path+"/rename", map[string]string{"newName": "no/slash"}).want(400, nil)
	f.do("POST", path+"/rename", map[string]string{"newName": "prod", "newProject": "other"}).want(200, nil)
	f.do("GET", path, nil).want(404, nil)

	var got any
	f.do("GET", "/api/stacks/acme/other/prod/export", nil).want(200, &got)
	var want any
	err := json.Unmarshal([]byte(`{"version":3,"deployment":{
		"secrets_providers":{"type":"service","state":{"url":"http://u","owner":"acme","project":"other","stack":"prod"}},
		"resources":[
			{"urn":"urn:pulumi:prod::other::pulumi:pulumi:Stack::other-prod","type":"pulumi:pulumi:Stack"},
			{"urn":"urn:pulumi:prod::other::a:b:C::r","parent":"urn:pulumi:prod::other::pulumi:pulumi:Stack::other-prod",
			 "dependencies":["urn:pulumi:prod::other::a:b:C::s"],"propertyDependencies":{"x":["urn:pulumi:prod::other::a:b:C::s"],"y":null},
			 "provider":"urn:pulumi:prod::other::pulumi:providers:a::default::some-id","inputs":{"n":12345678901234567890,"ref":
			 {"4dabf18193072939515e22adb298388d":"5cf8f73096256a8f31e491e813e4eb8e","urn":"urn:pulumi:prod::other::a:b:C::r"}},
			 "outputs":{"text":"urn:pulumi:dev::proj::a:b:C::r"}},
			{"urn":"urn:pulumi:devil::proj::a:b:C::r"}],
		"pending_operations":[{"type":"creating","resource":{"urn":"urn:pulumi:prod::other::a:b:C::p"}}]}}`), &want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	var s struct{ Tags map[string]string }
	f.do("GET", "/api/stacks/acme/other/prod", nil).want(200, &s)
	if s.Tags["pulumi:project"] != "other" {
		t.Errorf("tags after the rename = %v", s.Tags)
	}
}
