package workflow

import (
	"os/exec"
	"strings"
	"testing"
)

func TestParseRepository(t *testing.T) {
	for _, tt := range []struct{ raw, url, name string }{ // url "": rejected
		{"https://github.com/acme/infra.git", "https://github.com/acme/infra.git", "github.com/acme/infra"},
		{" HTTPS://user:pass@GitHub.com:443//acme/infra/ ", "https://github.com/acme/infra/", "github.com/acme/infra"},
		{"http://127.0.0.1:3000/x", "http://127.0.0.1:3000/x", "127.0.0.1:3000/x"},
		{"http://[::1]:3000/x", "http://[::1]:3000/x", "[::1]:3000/x"},
		{"http://[0:0::1]/x", "http://[::1]/x", "[::1]/x"},
		{"https://dev.azure.com/o/My%20Project/_git/r", "https://dev.azure.com/o/My%20Project/_git/r", "dev.azure.com/o/My Project/_git/r"},
		{"https://h.example/%c3%bc", "https://h.example/%C3%BC", "h.example/ü"},
		{"https://h.example/%61cme/x", "https://h.example/acme/x", "h.example/acme/x"},
		{"ssh://git@h:22/x", "ssh://git@h/x", "h/x"},
		{"git+ssh://git@h:2222/x", "ssh://git@h:2222/x", "h:2222/x"},
		{"SSH+git://h/~me/x.git", "ssh://h/~me/x.git", "h/~me/x"},
		{"git@github.com:a/b.git", "git@github.com:a/b.git", "github.com/a/b"},
		{"GitHub.com:a/b", "github.com:a/b", "github.com/a/b"},
		{"localhost:a/b", "localhost:a/b", "localhost/a/b"},
		{"git@h:/srv//x", "git@h:/srv/x", "h/srv/x"},
		{"git@h:22/x", "git@h:22/x", "h/22/x"}, // this form has no ports

		{"", "", ""},
		{"https://", "", ""},
		{"https://h", "", ""},
		{"https://h/", "", ""},
		{"https://h/.git", "", ""},
		{"https://h/a?b", "", ""},
		{"https://h/a?", "", ""},
		{"https://h/a#b", "", ""},
		{"https://h/a#", "", ""},
		{"https://h/a/../b", "", ""},
		{"https://h/a/./b", "", ""},
		{"https://h/%2e%2E/b", "", ""},
		{"https://h/a%2Fb", "", ""},
		{"https://h/a%252e", "", ""},
		{"https://h/a%00b", "", ""},
		{"https://h/a%0d", "", ""},
		{"https://h/a%5Cb", "", ""},
		{"https://h/a%FFb", "", ""},
		{"https://h/a\u202eb", "", ""},
		{"https://h\u3002example/a", "", ""},
		{"https://h:0443/a", "", ""},
		{"https://h:443443/a", "", ""},
		{"https://[fe80::1%25eth0]/a", "", ""},
		{"https://-h/a", "", ""},
		{"https://.../a", "", ""},
		{"https://u%0Ax@h/a", "", ""},
		{"ssh://-u@h/a", "", ""},
		{"ssh://u;id@h/a", "", ""},
		{"git://h/a", "", ""},
		{"git+https://h/a", "", ""},
		{"file:///a", "", ""},
		{"/a", "", ""},
		{"./a:b", "", ""},
		{"C:/a", "", ""},
		{`C:\a`, "", ""},
		{"ext::sh", "", ""},
		{"git@h::x", "", ""},
		{"git@h:-x", "", ""},
		{"git@h:a%2e", "", ""},
		{"git@[h:22]:x", "", ""},
		{"a@b@h:x", "", ""},
		{"https:h/x", "", ""},
	} {
		r, err := ParseRepository(tt.raw)
		switch {
		case (err == nil) != (tt.url != ""):
			t.Errorf("%q: got %v, %v, want %q", tt.raw, r, err, tt.url)
		case err == nil && (r.String() != tt.url || r.Name() != tt.name):
			t.Errorf("%q: got %q and %q, want %q and %q", tt.raw, r.String(), r.Name(), tt.url, tt.name)
		}
	}
}

// FuzzParseRepository compares the parser with git's. git must connect to the host and path that
// the agent compares with allowed_repositories.
func FuzzParseRepository(f *testing.F) {
	for _, seed := range []string{
		"https://u:p@GitHub.com:443//acme/in%20fra.git/", "git+ssh://git@h.example:2222/~x/y", "git@h.example:a/b", "h.example:/a:b/c",
		"ssh://[::1]:22/x", "ssh://h.example/a'b", "http://h.example:8080/%c3%a9", "git@h.example:22/[x]", "ssh://u@h.example/a@b:c",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := ParseRepository(raw)
		if err != nil {
			return
		}
		again, err := ParseRepository(r.String())
		if err != nil || again.String() != r.String() || again.Name() != r.Name() || again.Origin() != r.Origin() {
			t.Fatalf("%q is %q, which is read as %v, %v", raw, r, again, err)
		}
		if r.Password != "" && len(r.Password) > 12 && strings.Contains(r.String(), r.Password) {
			t.Fatalf("%q still holds the password", r)
		}
		if r.Scheme == "ssh" {
			agreeWithGit(t, r)
		}
	})
}

// agreeWithGit compares r with the address that git would connect to.
func agreeWithGit(t *testing.T, r *Repository) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "fetch-pack", "--diag-url", r.String()).CombinedOutput()
	if err != nil {
		t.Fatalf("git refuses %q: %s", r, out)
	}
	diag := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimRight(line, "\n"), "Diag: "), "=")
		diag[name] = value
	}
	host := strings.TrimSuffix(diag["userandhost"], ":")
	if r.User != "" {
		host = strings.TrimPrefix(host, r.User+"@")
	}
	if port := diag["port"]; port != "NONE" {
		host += ":" + port
	}
	path := strings.TrimPrefix(diag["path"], "/")
	name := strings.NewReplacer("[", "", "]", "").Replace(r.Host) + "/" + strings.TrimPrefix(r.path, "/")
	if diag["protocol"] != "ssh" || strings.NewReplacer("[", "", "]", "").Replace(host)+"/"+path != name {
		t.Fatalf("%q: git goes to %q, we say %q", r, host+"/"+path, name)
	}
}

func TestResolve(t *testing.T) {
	for _, tt := range []struct{ from, raw, want string }{
		{"https://h.example/a/b.git", "../c.git", "https://h.example/a/c.git"},
		{"https://h.example/a/b.git", "./c", "https://h.example/a/b.git/c"},
		{"https://h.example/a/b", "../../../../c", "https://h.example/c"},
		{"https://h.example:8443/a%20b/c", "../d", "https://h.example:8443/a%20b/d"},
		{"git@h.example:a/b.git", "../c.git", "git@h.example:a/c.git"},
		{"git@h.example:/srv/b.git", "../c.git", "git@h.example:/srv/c.git"},
		{"ssh://git@h.example:2222/a/b", "../c", "ssh://git@h.example:2222/a/c"},
		{"https://h.example/a", "https://user:pass@other.example/b", "https://other.example/b"},
		{"https://h.example/a", "git@other.example:b", "git@other.example:b"},
		{"https://h.example/a", "..", ""},
		{"https://h.example/a", "../%2e%2e/b", ""},
		{"https://h.example/a", "/srv/b", ""},
		{"https://h.example/a", "ext::id", ""},
		{"https://h.example/a", "", ""},
	} {
		from, err := ParseRepository(tt.from)
		if err != nil {
			t.Fatal(err)
		}
		got, err := from.Resolve(tt.raw)
		switch {
		case tt.want == "" && err == nil:
			t.Errorf("%s from %s: got %s", tt.raw, tt.from, got)
		case tt.want != "" && (err != nil || got.String() != tt.want || got.Password != ""):
			t.Errorf("%s from %s: got %s, %v, want %s", tt.raw, tt.from, got, err, tt.want)
		}
	}
}

func TestRepositoryPath(t *testing.T) {
	for address, want := range map[string]string{
		"ssh://git@example.com/a/b.git":   "/a/b.git",
		"ssh://git@example.com/~a/b.git":  "~a/b.git",
		"git@example.com:a/b.git":         "a/b.git",
		"git@example.com:/a/b.git":        "/a/b.git",
		"https://example.com/a/b%20c.git": "/a/b c.git",
	} {
		repo, err := ParseRepository(address)
		if err != nil {
			t.Fatal(err)
		}
		if got := repo.Path(); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
