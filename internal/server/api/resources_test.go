package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"workflowagent/internal/server/api/request"
)

type resourceList struct {
	Version   int
	Resources []struct{ Resource map[string]any }
}

func TestResources(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	var empty resourceList
	f.do("GET", path+"/resources/latest", nil).want(200, &empty)
	if empty.Version != 0 || len(empty.Resources) != 0 {
		t.Errorf("resources of a new stack = %+v", empty)
	}
	f.do("POST", path+"/import", state(1)).want(200, nil)
	const bucket = "urn:pulumi:dev::proj::aws:s3/bucket:Bucket::b"
	body := `{"version":3,"deployment":{"resources":[
		{"urn":"` + bucket + `","type":"aws:s3/bucket:Bucket","delete":true,"id":"old","custom":true},
		{"urn":"` + bucket + `","type":"aws:s3/bucket:Bucket","id":"new","custom":true,"parent":null,"dependencies":null,
		 "inputs":{"n":12345678901234567890,"s":"text"},
		 "outputs":{"hidden":{"4dabf18193072939515e22adb298388d":"1b47061264138c4ac30d75fd1eb44270","plaintext":"\"cleartext\""},
		  "kept":{"4dabf18193072939515e22adb298388d":"1b47061264138c4ac30d75fd1eb44270","ciphertext":"AAAB"}}},
		{"urn":"urn:pulumi:dev::proj::a:b:C::r","type":"a:b:C","dependencies":["` + bucket + `"]}]}}`
	f.do("POST", path+"/import", body).want(200, nil)

	var latest, first resourceList
	a := f.do("GET", path+"/resources/latest", nil).want(200, &latest)
	f.do("GET", path+"/resources/1", nil).want(200, &first)
	if latest.Version != 2 || len(latest.Resources) != 3 || first.Version != 1 || len(first.Resources) != 1 {
		t.Errorf("resources of version 2 = %+v, of version 1 = %+v", latest, first)
	}
	if strings.Contains(string(a.Body), "cleartext") || !strings.Contains(string(a.Body), "AAAB") || !strings.Contains(string(a.Body), "12345678901234567890") {
		t.Errorf("resources = %s, want no plaintext, the ciphertext, and the number", a.Body)
	}
	var one struct {
		Version  int
		Resource struct{ Resource map[string]any }
	}
	for _, at := range []string{"latest", "2"} {
		one.Resource.Resource = nil
		f.do("GET", path+"/resources/"+at+"/"+url.PathEscape(bucket), nil).want(200, &one)
		if one.Version != 2 || one.Resource.Resource["id"] != "new" {
			t.Errorf("resource at %s = %+v, want the one that is not being deleted", at, one)
		}
	}
	f.do("GET", path+"/resources/1/"+url.PathEscape(bucket), nil).want(404, nil).says("has no resource")
	f.do("GET", path+"/resources/latest/urn:pulumi:dev::proj::a:b:C::r", nil).want(200, nil)
	f.do("GET", path+"/resources/2/urn:pulumi:dev::proj::a:b:C::r", nil).want(200, nil)
	f.do("GET", path+"/resources/3", nil).want(404, nil)
	f.do("GET", path+"/resources/x", nil).want(400, nil)
	f.do("GET", path+"/resources/x/y", nil).want(400, nil)
	var count struct{ ResourceCount, Version int }
	f.do("GET", path+"/resources/count", nil).want(200, &count)
	if count.ResourceCount != 3 || count.Version != 2 {
		t.Errorf("count = %+v", count)
	}
}

// TestResourcesOfALargeStack lists a state of 50 000 resources, within the server's memory for
// requests.
func TestResourcesOfALargeStack(t *testing.T) {
	f := newFixture(t, options{limits: request.Limits{Together: 48 << 20}})
	path := f.stack("dev")
	var b strings.Builder
	b.WriteString(`{"version":3,"deployment":{"resources":[`)
	for i := range 50_000 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"urn":"urn:pulumi:dev::proj::a:b:C::r%d","type":"a:b:C","custom":true,"id":"id-%d","outputs":{"name":"value %d"}}`, i, i, i)
	}
	b.WriteString(`]}}`)
	f.send(call{Method: "POST", Path: path + "/import", Body: b.String(), Gzip: true}).want(200, nil)
	status, body, err := f.read(path+"/resources/latest", "identity")
	if err != nil || status != 200 {
		t.Fatalf("status %d, %v", status, err)
	}
	var all resourceList
	if err := json.Unmarshal(body, &all); err != nil || len(all.Resources) != 50_000 {
		t.Fatalf("%d resources, %v", len(all.Resources), err)
	}
	f.do("GET", path+"/resources/latest/urn:pulumi:dev::proj::a:b:C::r49999", nil).want(200, nil).says("id-49999")
}
