package kubernetes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLoadConfig(t *testing.T) {
	const valid = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://cluster.example.com"}}]
contexts: [{name: x, context: {cluster: c, user: u, namespace: jobs}}]
users: [{name: u, user: {token: secret}}]
current-context: x
`
	for name, test := range map[string]struct {
		text string
		want string // part of the error
	}{
		"valid":           {text: valid},
		"no namespace":    {text: strings.Replace(valid, ", namespace: jobs", "", 1)},
		"empty":           {want: "set KUBECONFIG"},
		"invalid":         {text: "clusters: [\n\tx", want: "reading the kubeconfig"},
		"another format":  {text: "clusters: text\n", want: "reading the kubeconfig"},
		"unknown context": {text: strings.Replace(valid, "current-context: x", "current-context: y", 1), want: "reading the kubeconfig"},
		"missing files":   {text: strings.Replace(valid, "token: secret", "client-certificate: /missing/a, client-key: /missing/b", 1), want: "/missing/a"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("KUBECONFIG", path)
			t.Setenv("HOME", t.TempDir())
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			config, namespace, err := LoadConfig()
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) || strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), "secret") {
					t.Errorf("got %v, want one line with %q", err, test.want)
				}
				return
			}
			want := map[bool]string{true: "jobs", false: "default"}[strings.Contains(test.text, "namespace")]
			if err != nil || namespace != want || config.Host != "https://cluster.example.com" {
				t.Errorf("got %+v, namespace %q, %v", config, namespace, err)
			}
		})
	}
}
