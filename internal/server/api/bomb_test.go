package api_test

import (
	"strings"
	"testing"
)

// TestManySmallValuesAreRefused sends bodies of a few kilobytes that need hundreds of times as much
// memory when decoded. The server must reject the bodies.
func TestManySmallValuesAreRefused(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	empty := strings.Repeat(`"",`, 300_000) + `""`
	u := f.start(path, "update")
	for _, tt := range []struct{ method, path, body string }{
		{"POST", path + "/batch-encrypt", `{"plaintexts":[` + empty + `]}`},
		{"POST", path + "/batch-decrypt", `{"ciphertexts":[` + empty + `]}`},
		{"POST", path + "/update", `{"name":"p","options":{"a":[` + empty + `]}}`},
		{"PATCH", path + "/tags", `{"a":[` + empty + `]}`},
		{"POST", "/api/stacks/acme/proj", `{"stackName":"other","tags":[` + empty + `]}`},
		{"POST", path + "/tags", strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000)},
	} {
		a := f.send(call{Method: tt.method, Path: tt.path, Body: tt.body, Gzip: true})
		if a.Status != 413 && (a.Status != 400 || !strings.Contains(string(a.Body), "nested deeper")) {
			t.Errorf("%s %s: status %d, body %.200s", tt.method, tt.path, a.Status, a.Body)
		}
	}
	u.send("POST", "/events/batch", `{"events":[{"sequence":0,"a":[`+empty+`]}]}`).want(413, nil)
	// The number of values is within its limit, but the size exceeds the limit for all bodies
	// except states.
	large := `{"plaintexts":["` + strings.Repeat("A", 33<<20) + `"]}`
	f.send(call{Method: "POST", Path: path + "/batch-encrypt", Body: large, Gzip: true}).want(413, nil)
	// The stock CLI sends a thousand secrets at a time.
	f.send(call{Method: "POST", Path: path + "/batch-encrypt", Body: `{"plaintexts":["YQ=="` + strings.Repeat(`,"YQ=="`, 999) + `]}`, Gzip: true}).want(200, nil)
}

// TestBatchesOfSecrets sends batches in the forms that clients in other languages use.
func TestBatchesOfSecrets(t *testing.T) {
	f := newFixture(t, options{})
	path := f.stack("dev")
	var encrypted struct{ Ciphertexts []string }
	f.do("POST", path+"/batch-encrypt", `{"x":[{"plaintexts":1}],"PlainTexts":["YQ==",null,""],"y":{}}`).want(200, &encrypted)
	if len(encrypted.Ciphertexts) != 3 {
		t.Fatalf("%d ciphertexts", len(encrypted.Ciphertexts))
	}
	var decrypted struct{ Plaintexts map[string][]byte }
	c := encrypted.Ciphertexts
	a := f.do("POST", path+"/batch-decrypt", map[string]any{"ciphertexts": []string{c[0], c[1], c[0], c[2]}}).want(200, &decrypted)
	if len(decrypted.Plaintexts) != 3 || string(decrypted.Plaintexts[c[0]]) != "a" || strings.Count(string(a.Body), c[0]) != 1 {
		t.Errorf("decrypted: %s", a.Body)
	}
	f.do("POST", path+"/batch-encrypt", `{"plaintexts":null}`).want(200, &encrypted)
	f.do("POST", path+"/batch-encrypt", `{}`).want(200, &encrypted)
	for _, bad := range []string{`[]`, `5`, `{"plaintexts":5}`, `{"plaintexts":["YQ=="}`, `{"plaintexts":["YQ=="]`, `{"plaintexts":[]} x`, `{"plaintexts":["%"]}`, `{"plaintexts":[5]}`, ``, ` `} {
		f.do("POST", path+"/batch-encrypt", bad).want(400, nil)
		f.do("POST", path+"/batch-decrypt", strings.ReplaceAll(bad, "plaintexts", "ciphertexts")).want(400, nil)
	}
}
