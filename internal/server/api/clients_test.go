package api_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestCallsOfClients sends each call that older clients are known to make, without a token, so that it
// changes nothing. A route of the server requires one, or answers. The others must be known to be absent,
// because clients show the sentence of the answer to their users.
func TestCallsOfClients(t *testing.T) {
	data, err := os.ReadFile("testdata/clients.txt")
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, options{})
	parameter := regexp.MustCompile(`\{[a-z]+\}`)
	absent, calls := false, 0
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) == 1 && fields[0] == "absent" {
			absent = true
			continue
		}
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) < 3 {
			t.Fatalf("%q names no client", line)
		}
		kinds := []string{"update"}
		if strings.Contains(fields[1], "{kind}") {
			kinds = []string{"update", "preview", "refresh", "destroy"}
		}
		for _, kind := range kinds {
			calls++
			path := parameter.ReplaceAllString(strings.ReplaceAll(fields[1], "{kind}", kind), "a")
			a := f.send(call{Method: fields[0], Path: path, Body: "{}", Auth: "none"})
			stated := strings.Contains(string(a.Body), "this server does not offer")
			unknown := a.Status == http.StatusNotFound || a.Status == http.StatusMethodNotAllowed
			if absent && !stated || !absent && unknown {
				t.Errorf("%s: status %d, %s; the clients %s call it", a.call, a.Status, a.Body, strings.Join(fields[2:], ", "))
			}
		}
	}
	if calls < 150 || !absent {
		t.Errorf("the list contains %d calls, with absent ones: %t", calls, absent)
	}
}
