package api_test

import (
	"net/url"
	"strings"
)

// packDraft is what a client says about a policy pack that can be configured.
func packDraft(name, tag string) map[string]any {
	policy := func(name, level string) map[string]any {
		return map[string]any{
			"name": name, "displayName": "Policy " + name, "description": "d", "enforcementLevel": level, "message": "m", "severity": "high",
			"configSchema": map[string]any{"type": "object", "properties": map[string]any{
				"enforcementLevel": map[string]any{"type": "string", "enum": []string{"advisory", "mandatory", "remediate", "disabled"}},
				"max":              map[string]any{"type": "integer"},
			}},
		}
	}
	return map[string]any{
		"name": name, "displayName": "Pack " + name, "versionTag": tag, "runtime": "test", "description": "d", "tags": []string{"t"},
		"metadata": map[string]string{"git.head": "abc"}, "policies": []any{policy("buckets", "mandatory"), policy("tags", "advisory")},
	}
}

// address returns the path and the query of an address of the server.
func (f *fixture) address(text string) string {
	f.t.Helper()
	path, ok := strings.CutPrefix(text, "http://server.test")
	if !ok {
		f.t.Fatalf("the address %q is not one of the server", text)
	}
	return path
}

// draft creates a version of a policy pack of an organization, and returns the path for the upload.
func (f *fixture) draft(org string, body map[string]any) (upload string) {
	f.t.Helper()
	var made struct{ UploadURI string }
	f.do("POST", "/api/orgs/"+org+"/policypacks", body).want(201, &made)
	return f.address(made.UploadURI)
}

// put uploads an archive as clients do, without a token.
func (f *fixture) put(upload string, body any) answer {
	f.t.Helper()
	return f.send(call{Method: "PUT", Path: upload, Body: body, Auth: "none"})
}

// publishPack publishes a version of a policy pack.
func (f *fixture) publishPack(org, name, tag, archive string) {
	f.t.Helper()
	f.put(f.draft(org, packDraft(name, tag)), archive).want(204, nil)
	f.do("POST", "/api/orgs/"+org+"/policypacks/"+name+"/versions/"+tag+"/complete", nil).want(204, nil)
}

// required is a policy pack that an update must run.
type required struct {
	Name, VersionTag, DisplayName, PackLocation string
	Version                                     int
	Config                                      map[string]map[string]any
	Environments                                []string
}

// required returns the policy packs that a new operation on a stack must run.
func (f *fixture) required(stack, kind string) (list []required) {
	f.t.Helper()
	var created struct{ RequiredPolicies []required }
	f.do("POST", stack+"/"+kind, program()).want(200, &created)
	return created.RequiredPolicies
}

// labels returns names and versions of packs.
func labels(list []required) string {
	var out []string
	for _, r := range list {
		out = append(out, r.Name+" "+r.VersionTag)
	}
	return strings.Join(out, ", ")
}

// with returns an address with another query parameter.
func with(address, name, value string) string {
	path, text, _ := strings.Cut(address, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return address
	}
	query.Set(name, value)
	return path + "?" + query.Encode()
}
