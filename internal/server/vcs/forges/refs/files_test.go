package refs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"workflowagent/internal/dev/lab"
	"workflowagent/internal/dev/must"
	"workflowagent/internal/server/vcs"
)

func yaml(path string) bool { return strings.HasSuffix(path, "/") || strings.HasSuffix(path, ".yaml") }

// TestFiles reads files of git's own server, which leaves out other files if it may, and whose objects are differences.
func TestFiles(t *testing.T) {
	for name, options := range map[string]lab.GitOptions{"SHA-1": {}, "SHA-256": {SHA256: true}} {
		for _, filter := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", filter ", filter), func(t *testing.T) {
				server := must.Get(lab.StartGitServer(t.Context(), t.TempDir(), options))(t)
				t.Cleanup(func() { server.Close() })
				random := rand.New(rand.NewPCG(1, 2))
				large := make([]byte, 200_000) // that compresses badly
				for i := range large {
					large[i] = byte(random.IntN(256))
				}
				content := map[string]string{"envs/app/prod.yaml": "a: 1\n", "envs/app/same.yaml": "a: 1\n", "envs/other/README": "no", "top.yaml": "t: 1\n", "bin/large": string(large)}
				for n := range 60 { // similar files, for differences
					content[fmt.Sprintf("envs/many/%d.yaml", n)] = strings.Repeat(fmt.Sprintf("key%d: a rather long value\n", n), 50) + strings.Repeat("common: line\n", 500)
				}
				repo, _, err := server.NewRepo(t.Context(), "app", content)
				must.OK(t, err)
				commit := must.Get(repo.Commit(t.Context(), lab.MainBranch, "Second", map[string]string{"envs/app/prod.yaml": "a: 2\n"}))(t)
				git(t, repo.Dir(), "repack", "-adq", "--depth=50", "--window=100")
				git(t, repo.Dir(), "config", "uploadpack.allowFilter", fmt.Sprint(filter))
				c := client(t, server.URL)
				got, err := c.Files(t.Context(), repo.URL, vcs.Credential{}, commit, "/envs/", yaml)
				must.OK(t, err)
				if len(got) != 62 {
					t.Errorf("%d files", len(got))
				}
				for _, f := range got {
					want := content["envs/"+f.Path]
					if f.Path == "app/prod.yaml" {
						want = "a: 2\n"
					}
					if diff := cmp.Diff(want, f.Content); diff != "" {
						t.Errorf("%s:\n%s", f.Path, diff)
					}
				}
				if got, err := c.Files(t.Context(), repo.URL, vcs.Credential{}, commit, "", func(p string) bool { return p == "top.yaml" }); err != nil || len(got) != 1 || got[0].Content != "t: 1\n" {
					t.Errorf("of the root: %v, %v", got, err)
				}
				for _, folder := range []string{"missing", "envs/app/prod.yaml", "envs/../envs"} {
					if _, err := c.Files(t.Context(), repo.URL, vcs.Credential{}, commit, folder, yaml); !errors.Is(err, vcs.ErrNoFolder) {
						t.Errorf("folder %s: %v", folder, err)
					}
				}
				missing := strings.Repeat("1", len(commit))
				if _, err := c.Files(t.Context(), repo.URL, vcs.Credential{}, missing, "", yaml); !errors.Is(err, vcs.ErrNotFound) {
					t.Errorf("a missing commit: %v", err)
				}
			})
		}
	}
}
