package protocol_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/protocol"
)

func TestProxySecrets(t *testing.T) {
	got := protocol.ProxySecrets(map[string]string{
		"HTTPS_PROXY": "http://user:hunter2@proxy:3128/",
		"https_proxy": "http://us%40er:p%40ss%2Fword@proxy:3128",
		"HTTP_PROXY":  "user:bare-password@proxy:3128",
		"http_proxy":  "http://proxy:3128",
		"ALL_PROXY":   "socks5://user@proxy",
		"all_proxy":   "%zz",
		"NO_PROXY":    ".internal,localhost",
	})
	want := map[string][]string{
		"HTTPS_PROXY": {"hunter2"},
		"https_proxy": {"p@ss/word", "p%40ss%2Fword"},
		"HTTP_PROXY":  {"bare-password"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
