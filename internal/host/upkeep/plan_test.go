package upkeep

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/host/release"
	"workflowagent/internal/host/update"
)

func TestUpdateModes(t *testing.T) {
	packaged := &update.PackagedError{Manager: "dpkg", Command: "sudo apt-get upgrade it"}
	good := config.Config{AutoUpdate: config.UpdateAuto}
	for _, tt := range []struct {
		name              string
		config            config.Config
		version, stage    string
		finderErr, ownErr error
		mode, state       string
	}{
		{"a service of install.sh", good, "v1.0.0", "/stage", nil, nil, status.UpdateInstalls, ""},
		{"the same, asked for", config.Config{AutoUpdate: config.UpdateOn}, "v1.0.0", "/stage", nil, nil, status.UpdateInstalls, ""},
		{"not wanted", config.Config{AutoUpdate: config.UpdateOff}, "v1.0.0", "/stage", nil, nil, status.UpdateOff, "auto_update is false"},
		{"one job only", config.Config{AutoUpdate: config.UpdateOn, Agent: config.Agent{SingleRun: true}}, "v1.0.0", "/stage", nil, nil, status.UpdateOff, "single_run"},
		{"no keys", good, "v1.0.0", "/stage", release.ErrNoKeys, nil, status.UpdateOff, "no release key"},
		{"a build from source", good, "v1.0.0-3-gabcdef", "/stage", nil, errors.New("not installed by install.sh"), status.UpdateOff, "not installed by"},
		{"a development build", good, "0000000-dirty", "/stage", nil, nil, status.UpdateOff, "development build"},
		{"a package", good, "v1.0.0", "", nil, packaged, status.UpdateTells, "sudo apt-get upgrade it"},
		{"a package, asked for", config.Config{AutoUpdate: config.UpdateOn}, "v1.0.0", "/stage", nil, packaged, status.UpdateTells, "sudo apt-get upgrade it"},
		{"no service", good, "v1.0.0", "", nil, nil, status.UpdateTells, "customer-managed-workflow-agent update"},
		{"a copy made by hand", good, "v1.0.0", "/stage", nil, errors.New("not installed by install.sh"), status.UpdateOff, "not installed by"},
	} {
		got := plan(&tt.config, tt.version, tt.stage, tt.finderErr, func() error { return tt.ownErr })
		if got.Mode != tt.mode || !strings.Contains(got.State, tt.state) {
			t.Errorf("%s: %+v, want %s %q", tt.name, got, tt.mode, tt.state)
		}
	}
}

// TestKeysOfUpdates checks that the configured channel and URL are used.
func TestKeysOfUpdates(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.URL.Path)
		http.NotFound(w, r)
	}))
	defer mirror.Close()
	c, err := config.Load(config.ProcessOptions(settings(t, "update_channel: beta\nupdate_url: "+mirror.URL+"/releases\n")))
	if err != nil {
		t.Fatal(err)
	}
	finder, err := openFinder(c, testKeys(t), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := finder.Latest(t.Context()); err == nil || !strings.Contains(err.Error(), mirror.URL) {
		t.Errorf("got %v", err)
	}
	if !slices.Contains(asked, "/releases/beta.txt") {
		t.Errorf("asked for %q", asked)
	}
	c.UpdateURL = ""
	if _, err := openFinder(c, testKeys(t), nil, ""); err == nil || !strings.Contains(err.Error(), "update_url") {
		t.Errorf("without a home: %v", err)
	}
}

// testKeys returns a public key whose private key is discarded.
func testKeys(t *testing.T) release.Keys {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return release.Keys{&key.PublicKey}
}
