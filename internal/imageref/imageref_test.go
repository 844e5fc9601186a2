package imageref

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	digest := "sha256:" + strings.Repeat("a", 64)
	for text, want := range map[string]Image{
		"alpine":                   {Name: "docker.io/library/alpine"},
		"alpine:3":                 {Name: "docker.io/library/alpine", Tag: "3"},
		"pulumi/pulumi":            {Name: "docker.io/pulumi/pulumi"},
		"index.docker.io/a/b":      {Name: "docker.io/a/b"},
		"localhost/a":              {Name: "localhost/a"},
		"r.example.com:5000/a/b:T": {Name: "r.example.com:5000/a/b", Tag: "T"},
		"EVIL:443/x":               {Name: "EVIL:443/x"},
		"a@" + digest:              {Name: "docker.io/library/a", Digest: digest},
		"a:1@" + digest:            {Name: "docker.io/library/a", Tag: "1", Digest: digest},
		"Registry.Example.com/x":   {Name: "Registry.Example.com/x"},
		"[2001:db8::1]:5000/x":     {Name: "[2001:db8::1]:5000/x"},
		"a--b/c__d/e.f":            {Name: "docker.io/a--b/c__d/e.f"},
		"r.example.com/x:" + strings.Repeat("t", 128): {Name: "r.example.com/x", Tag: strings.Repeat("t", 128)},
	} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "EVIL/x", "Evil/x:1", "a/B", "a/../b", "/a", "a/", "a//b", "a b", "a\nb", "a@", "a@b@c", "a:", ":tag", "a:b:c", "-a/b", "a@sha256:abc",
		"a@md5:" + strings.Repeat("a", 32), digest, strings.Repeat("a", 64), "https://r.example.com/a", "a\\b", "a:" + strings.Repeat("t", 129),
		"r.example.com/" + strings.Repeat("a", 600), "é/x",
	} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
