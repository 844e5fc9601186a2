package docker

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func FuzzRegistryConfig(f *testing.F) {
	f.Add([]byte(`{"auths":{"https://index.docker.io/v1/":{"auth":"dXNlcjpwYXNz"}},"credsStore":"x","credHelpers":{"r":"y"}}`), "registry.example.com")
	f.Add([]byte(`{"auths":{"registry.example.com":{"auth":"%%%","identitytoken":"t"}}}`), "registry.example.com")
	f.Add([]byte(`{"auths":null,"credHelpers":[]}`), "")
	f.Fuzz(func(t *testing.T, text []byte, host string) {
		home := t.TempDir()
		if err := os.MkdirAll(filepath.Join(home, ".docker"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, ".docker", "config.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("HOME", home)
		config, err := readRegistryConfig()
		if err != nil {
			return
		}
		login, err := encodeLogin(config.find(host), host, "the configuration")
		if err != nil {
			for _, auth := range config.Auths {
				if len(auth.Password) > 20 && strings.Contains(err.Error(), auth.Password) {
					t.Errorf("the error repeats a password: %v", err)
				}
			}
			return
		}
		if strings.ContainsAny(login.encoded, "\r\n") {
			t.Errorf("the login breaks its header: %q", login.encoded)
		}
	})
}

func FuzzExtract(f *testing.F) {
	f.Add([]byte("spool/step-0001.state"))
	f.Fuzz(func(t *testing.T, archive []byte) {
		dir := t.TempDir()
		dst := filepath.Join(dir, "dst")
		_ = extract(bytes.NewReader(archive), spoolCopy(t, dst)) // most archives are invalid
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Fatalf("extraction wrote outside its directory: %v, %v", entries, err)
		}
	})
}

func FuzzHelperAnswer(f *testing.F) {
	f.Add([]byte(`{"ServerURL":"r","Username":"<token>","Secret":"s"}`))
	f.Add([]byte("\x1b[31mcredentials\r\nnot found"))
	f.Fuzz(func(t *testing.T, said []byte) {
		if text := complaint(string(said)); len(text) > 4*maxHelperOutput+100 || strings.ContainsAny(text, "\x1b\n\r") {
			t.Errorf("%q is shown as %q", said, text)
		}
	})
}
