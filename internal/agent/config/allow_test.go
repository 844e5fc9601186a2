package config

import (
	"strings"
	"testing"

	"workflowagent/internal/workflow"
)

func TestAllowsImage(t *testing.T) {
	good, evil := "sha256:"+strings.Repeat("0", 64), "sha256:"+strings.Repeat("e", 64)
	for _, tt := range []struct {
		pattern, image string
		want           bool
	}{
		{"pulumi/*", "pulumi/pulumi", true},
		{"pulumi/*", "pulumi/pulumi:3.1", true},
		{"pulumi/*", "docker.io/pulumi/pulumi:latest", true},
		{"pulumi/*", "index.docker.io/pulumi/pulumi", true},
		{"pulumi/*", "pulumi/pulumi@" + evil, true},
		{"pulumi/*", "pulumi/pulumi:3@" + evil, true},
		{"pulumi/*", "pulumi/a/b", false},
		{"pulumi/**", "pulumi/a/b", true},
		{"pulumi/*", "evil/pulumi/x", false},
		{"pulumi/*", "evil.com/pulumi/x", false},
		{"pulumi/*", "pulumi:5000/x", false},
		{"pulumi/*", "localhost/pulumi/x", false},
		{"pulumi/pulumi", "pulumi/pulumi-evil", false},
		{"pulumi/pulumi", "xpulumi/pulumi", false},
		{"alpine", "alpine:3", true},
		{"alpine", "docker.io/library/alpine", true},
		{"alpine", "me/alpine", false},
		{"registry.example.com:5000/team/**", "registry.example.com:5000/team/a/b:1", true},
		{"registry.example.com:5000/team/**", "registry.example.com/team/a", false},
		{"registry.example.com:5000/team/**", "registry.example.com:5000/teamx/a", false},
		{"*.example.com/x", "a.example.com/x", true},
		{"*.example.com/x", "evil.com/a.example.com/x", false},
		{"registryxexample.com/x", "registry.example.com/x", false},
		{"**", "anything.example.com/a/b:c", true},
		{"pulumi/pulumi:3.*", "pulumi/pulumi:3.1", true},
		{"pulumi/pulumi:3.*", "pulumi/pulumi:4", false},
		{"pulumi/pulumi:3.*", "pulumi/pulumi", false},
		{"pulumi/pulumi:latest", "pulumi/pulumi", true},
		// The engine follows the digest and ignores the tag.
		{"pulumi/pulumi:3.*", "pulumi/pulumi:3.1@" + evil, false},
		{"pulumi/pulumi@" + good, "pulumi/pulumi:any@" + good, true},
		{"pulumi/pulumi@" + good, "pulumi/pulumi@" + evil, false},
		{"pulumi/pulumi@" + good, "pulumi/pulumi", false},
		{"pulumi/*", "", false},
		{"**", "a/../b", false},
		{"**", "/a", false},
		{"**", "a b", false},
		{"**", "a\nb", false},
		{"**", "a@", false},
		{"**", "a@b@c", false},
		{"**", "a:", false},
		{"**", ":tag", false},
		// Nodes read the registry EVIL, and other programs a user of Docker Hub.
		{"**", "EVIL/x", false},
		{"EVIL/*", "EVIL/x", false},
		{"*/*", "EVIL/x", false},
		{"EVIL:443/*", "EVIL:443/x", true},
	} {
		c := &Config{AllowedImages: []string{tt.pattern}}
		if got := c.AllowsImage(tt.image); got != tt.want {
			t.Errorf("%q with pattern %q: %t, want %t", tt.image, tt.pattern, got, tt.want)
		}
	}
	if !(&Config{}).AllowsImage("anything") || (&Config{AllowedImages: []string{}}).AllowsImage("anything") {
		t.Error("a missing list must allow every image, an empty list none")
	}
	if !(&Config{AllowedImages: []string{"a", "b"}}).AllowsImage("b") {
		t.Error("the second pattern is ignored")
	}
}

func allows(c *Config, url string) bool {
	repo, err := workflow.ParseRepository(url)
	return err == nil && workflow.AllowsRepository(c.RepositoryPatterns(), repo.Name())
}

func TestAllowsRepository(t *testing.T) {
	for _, tt := range []struct {
		pattern, url string
		want         bool
	}{
		{"github.com/acme/*", "https://github.com/acme/infra", true},
		{"github.com/acme/*", "https://github.com/acme/infra.git", true},
		{"github.com/acme/*", "https://github.com/acme/infra.git/", true},
		{"github.com/acme/*", "https://github.com:443/acme/infra", true},
		{"github.com/acme/*", "https://user:pass@github.com/acme/infra", true},
		{"github.com/acme/*", "https://GitHub.com/acme/infra", true},
		{"github.com/acme/*", "git@github.com:acme/infra.git", true},
		{"github.com/acme/*", "github.com:acme/infra", true},
		{"github.com/acme/*", "ssh://git@github.com/acme/infra", true},
		{"github.com/acme/*", "ssh://git@github.com:22/acme/infra", true},
		{"github.com/acme/*", "git+ssh://git@github.com/acme/infra", true},
		{"github.com/acme/*", "ssh+git://git@github.com:22/acme/infra.git", true},
		{"github.com/acme/*", "GIT+SSH://git@github.com/acme/infra", true},
		{"github.com/acme/*", "git+ssh://git@github.com:2222/acme/infra", false},
		{"github.com/acme/*", "git+ssh://git@evil.com/acme/infra", false},
		{"github.com:2222/acme/*", "ssh://git@github.com:2222/acme/infra", true},
		{"dev.azure.com/org/*/_git/*", "https://dev.azure.com/org/My%20Project/_git/infra", true},
		{"**", "git+https://github.com/acme/infra", false},
		{"**", "git://github.com/acme/infra", false},
		{"**", "file:///srv/git/infra", false},
		{"**", "/srv/git/infra", false},
		{"**", "https://gıthub.com/acme/infra", false},
		{"**", "https://github。com/acme/infra", false},
		{"**", "https://evil.com／.github.com/acme/infra", false},
		{"**", "git@[github.com:2222]:acme/infra", false},
		{"github.com./acme/*", "https://github.com/acme/infra", false},
		{"github.com/acme/*", "https://github.com./acme/infra", false},
		{"github.com/acme/*", "https://github.com:0443/acme/infra", false},
		{"github.com/acme/infra", "https://github.com/acme/infra.git", true},
		{"github.com/acme/infra.git", "https://github.com/acme/infra", true},
		{"github.com/acme/*", "https://github.com/evil/infra", false},
		{"github.com/acme/*", "https://github.com/acme/a/b", false},
		{"github.com/acme/**", "https://github.com/acme/a/b", true},
		{"github.com/acme/*", "https://github.com/acme/../evil/infra", false},
		{"github.com/acme/**", "https://github.com/acme/%2e%2e/evil/infra", false},
		{"github.com/acme/**", "https://github.com/acme/..%2fevil/infra", false},
		{"github.com/acme/*", "https://github.com@evil.com/acme/infra", false},
		{"github.com/acme/*", "https://evil.com/github.com/acme/infra", false},
		{"github.com/acme/*", "https://evil.com?github.com/acme/infra", false},
		{"github.com/acme/*", "https://evil.com#github.com/acme/infra", false},
		{"github.com/acme/*", `https://evil.com\@github.com/acme/infra`, false},
		{"github.com/acme/*", "https://github.com:8443/acme/infra", false},
		{"github.com:8443/acme/*", "https://github.com:8443/acme/infra", true},
		{"github.com/acme/*", "evil@x@github.com:acme/infra", false},
		{"github.com/acme/*", "https://github.com//acme/infra", true}, // the runner removes the empty element before it fetches the repository
		{"GitHub.com/acme/*", "https://github.com/acme/infra", true},
		{"github.com/Acme/*", "https://github.com/acme/infra", false},
		{"github.com/acme/*", "githubxcom:acme/infra", false},
		{"**", "ext::sh -c id", false},
		{"**", "ext::id", false},
		{"**", "--upload-pack=id", false},
		{"**", "ftp://github.com/acme/infra", false},
		{"**", "https:///acme/infra", false},
		{"**", "file://host/srv/git", false},
		{"**", "relative/path", false},
		{"**", "", false},
		{"**", "https://github.com/acme/in fra", false},
		{"**", "https://github.com/acme/infra\n", true}, // the runner also trims the newline
		{"**", "https://github.com/acme/in\nfra", false},
		{"/srv/git/*", "/srv/git/infra", false}, // the runner fetches only from servers
		{"/srv/git/*", "file:///srv/git/infra.git", false},
		{"github.com/acme/*", "/github.com/acme/infra", false},
		{"srv/git/*", "/srv/git/infra", false},
	} {
		c := &Config{AllowedRepositories: []string{tt.pattern}}
		if got := allows(c, tt.url); got != tt.want {
			t.Errorf("%q with pattern %q: %t, want %t", tt.url, tt.pattern, got, tt.want)
		}
	}
	if !workflow.AllowsRepository(nil, "") || workflow.AllowsRepository([]string{}, "github.com/a/b") || workflow.AllowsRepository([]string{"**"}, "") {
		t.Error("a missing list must allow every repository, an empty list none")
	}
}
