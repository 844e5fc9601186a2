package workflow

import (
	"strings"
	"testing"
)

func TestRepositoryName(t *testing.T) {
	for _, row := range []struct{ provider, name, want string }{
		{"github", "acme/web", "acme/web"},
		{"github", "acme/web.git", "acme/web"},
		{"github", "/acme/a..b/", "acme/a..b"},
		{"gitlab", "group/sub/project", "group/sub/project"},
		{"bitbucket", "ws/repo", "ws/repo"},
		{"azure_devops", "acme/My Project/My Repo", "acme/My Project/My Repo"},
		{"azure_devops", "acme/My%20Project/My%20Repo", "acme/My Project/My Repo"},
		{"azure_devops", "acme/My%20Project/_git/My%20Repo", "acme/My Project/My Repo"},
		{"azure_devops", "acme/_git/Repo", "acme/Repo/Repo"},
		{"azure_devops", "acme/Ünïcode/r", "acme/Ünïcode/r"},
		{"custom", "app", "app"},
		{"custom", "My%20Project/_git/app", "My Project/_git/app"},
		{"custom", "https://git.example.com/a/b", "https://git.example.com/a/b"},
		{"custom", "git@git.example.com:a/b", "git@git.example.com:a/b"},
		{"github", "acme/my web", ""},
		{"gitlab", "My Group/My Project", ""},
		{"github", "https://github.com/acme/web", ""},
		{"azure_devops", "https://dev.azure.com/acme/p/_git/r", ""},
		{"azure_devops", "git@ssh.dev.azure.com:v3/acme/p/r", ""},
		{"azure_devops", "acme/p%2Fq/r", ""},
		{"azure_devops", "acme/p%/r", ""},
		{"azure_devops", "acme/100%25/r", ""},
		{"azure_devops", "acme/p/ r", ""},
		{"azure_devops", "acme/p/r\u00a0x", ""},
		{"github", "acme", ""},
		{"github", "acme/../web", ""},
		{"github", "acme//web", ""},
		{"github", "-acme/web", ""},
		{"github", "acme/web?x", ""},
		{"github", "acme/web\n", ""},
		{"custom", "", ""},
	} {
		got, err := RepositoryName(row.provider, row.name)
		if got != row.want && err == nil || (err != nil) != (row.want == "") {
			t.Errorf("%s %q: %q, %v, want %q", row.provider, row.name, got, err, row.want)
		}
		if err == nil {
			if again, err := RepositoryName(row.provider, got); again != got || err != nil {
				t.Errorf("%s %q: the form %q is not final: %q, %v", row.provider, row.name, got, again, err)
			}
		}
	}
	_, err := RepositoryName("azure_devops", "https://dev.azure.com/acme/p/_git/r")
	if err == nil || !strings.Contains(err.Error(), "organization/project/repository") {
		t.Errorf("the error does not name the form: %v", err)
	}
}

// TestSameRepository contains the forms of clone addresses that forges document or have used.
func TestSameRepository(t *testing.T) {
	for _, forms := range [][]string{
		{
			"https://dev.azure.com/acme/My%20Project/_git/My%20Repo", "https://acme@dev.azure.com/acme/My%20Project/_git/My%20Repo",
			"https://acme.visualstudio.com/My%20Project/_git/My%20Repo", "https://acme.visualstudio.com/DefaultCollection/My%20Project/_git/My%20Repo",
			"git@ssh.dev.azure.com:v3/acme/My%20Project/My%20Repo", "acme@vs-ssh.visualstudio.com:v3/acme/My%20Project/My%20Repo",
			"ssh://git@ssh.dev.azure.com/v3/acme/My%20Project/My%20Repo", "ssh://acme@acme.visualstudio.com:22/My%20Project/_ssh/My%20Repo",
			"https://dev.azure.com/acme/My%20Project/_git/_full/My%20Repo", "https://acme.visualstudio.com/My%20Project/_git/_optimized/my%20repo",
		},
		{
			"https://dev.azure.com/acme/app/_git/app", "https://dev.azure.com/acme/_git/app", "https://acme.visualstudio.com/_git/app",
			"https://acme.visualstudio.com/DefaultCollection/_git/app",
		},
		{
			"https://github.com/acme/web.git", "https://github.com/acme/web", "https://user@github.com/Acme/Web.git", "git@github.com:acme/web.git",
			"ssh://git@github.com/acme/web.git", "ssh://git@ssh.github.com:443/acme/web.git", "https://www.github.com/acme/web",
		},
		{"https://gitlab.com/g/s/p.git", "git@gitlab.com:g/s/p.git", "ssh://git@altssh.gitlab.com:443/g/s/p.git", "https://oauth2@gitlab.com/g/s/p.git"},
		{"https://bitbucket.org/ws/r.git", "https://ada@bitbucket.org/ws/r.git", "git@bitbucket.org:ws/r.git", "ssh://git@altssh.bitbucket.org:443/ws/r.git"},
		{"https://gitea.example.com:3000/a/b.git", "ssh://git@gitea.example.com:2222/a/b.git", "git@gitea.example.com:a/b"},
		{"https://tfs.example.com/tfs/DefaultCollection/p/_git/r", "https://tfs.example.com/tfs/DefaultCollection/p/_git/r/"},
	} {
		first, err := ParseRepository(forms[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range forms[1:] {
			r, err := ParseRepository(form)
			if err != nil {
				t.Errorf("%s: %v", form, err)
				continue
			}
			if !first.Same(r) || !r.Same(first) {
				t.Errorf("%s is another repository than %s", form, forms[0])
			}
			if again, err := ParseRepository(r.String()); err != nil || !again.Same(r) {
				t.Errorf("%s becomes %s: %v", form, r, err)
			}
		}
	}
	for _, pair := range [][2]string{
		{"https://dev.azure.com/acme/p/_git/r", "https://dev.azure.com/other/p/_git/r"},
		{"https://dev.azure.com/acme/p/_git/r", "https://other.visualstudio.com/p/_git/r"},
		{"https://dev.azure.com/acme/p/_git/r", "https://acme.visualstudio.com.evil.example/p/_git/r"},
		{"https://dev.azure.com/acme/p/_git/r", "https://acme.evil.visualstudio.com/p/_git/r"},
		{"https://dev.azure.com/acme/p/_git/r", "git@ssh.dev.azure.com:v3/acme/q/r"},
		{"https://github.com/a/b", "https://gitlab.com/a/b"},
		{"https://git.example.com:3000/a/b", "https://git.example.com:4000/a/b"},
		{"https://git.example.com/a/b", "https://git.example.com/A/b"},
		{"ssh://git@git.example.com:22/a/b", "ssh://git@git.example.com:2222/a/b"},
	} {
		a, err1 := ParseRepository(pair[0])
		b, err2 := ParseRepository(pair[1])
		if err1 != nil || err2 != nil || a.Same(b) || b.Same(a) {
			t.Errorf("%s and %s are the same, %v, %v", pair[0], pair[1], err1, err2)
		}
	}
	r, err := ParseRepository("git@ssh.dev.azure.com:v3/acme/My%20Project/My%20Repo")
	if err != nil || r.String() != "git@ssh.dev.azure.com:v3/acme/My%20Project/My%20Repo" || r.Path() != "v3/acme/My%20Project/My%20Repo" {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := ParseRepository("git@ssh.dev.azure.com:v3/acme/p%2Fq/r"); err == nil {
		t.Errorf("an escaped slash: %v", r)
	}
}
