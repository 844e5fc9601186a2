// Package lockfiles decides whether the dependencies that an earlier job installed into a checkout are
// those of the current program, so that installing them again would change nothing. In doubt, they are
// not.
package lockfiles

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"workflowagent/internal/runner/pulumi"
	"workflowagent/internal/sys/boundedfile"
	"workflowagent/internal/sys/dirtree"
)

// Stamp describes what was installed. It contains no secret, and its digest depends on none.
type Stamp struct {
	// Digest is the digest of lock files, manifests, the project file, versions of tools and settings; "":
	// the installation is never skipped, but continues in the directories of the earlier one.
	Digest string `json:"digest"`
	// Dir is the directory that the installation must have created, below the checkout; "": none.
	Dir string `json:"dir,omitempty"`
}

// Program is a program whose dependencies are needed.
type Program struct {
	Root    string // real path of the checkout
	Dir     string // real path of the program's directory, in Root
	File    string // the project file
	Project pulumi.Project
	Environ []string
	Secrets []string // names of the variables whose values contain secrets
}

// Doubt is the reason why an installation cannot be skipped for a program.
type Doubt struct{ reason string }

func (d *Doubt) Error() string { return d.reason }

func doubt(format string, args ...any) error { return &Doubt{fmt.Sprintf(format, args...)} }

// maxFile limits the size of a lock file, in bytes. Larger ones are possible, but not worth the time.
const maxFile = 64 << 20

// languages are the runtimes for which an installation can be skipped. manifests are the files, in the
// program's directory and those above it, that decide what is installed. locks are those of them that pin
// versions.
var languages = map[string]struct {
	manifests, locks []string
	prefixes         []string // of environment variables
	version          []string // command that prints the version of the runtime
}{
	"nodejs": {
		manifests: []string{
			"package.json", ".npmrc", ".yarnrc", ".yarnrc.yml", "pnpm-workspace.yaml", ".pnpmfile.cjs", "bunfig.toml",
			".nvmrc", ".node-version", ".tool-versions", "mise.toml", ".mise.toml",
		},
		locks:    []string{"package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb"},
		prefixes: []string{"npm_", "NPM_", "NODE_", "YARN_", "PNPM_", "BUN_"},
		version:  []string{"node", "--version"},
	},
	"python": {
		manifests: []string{
			"pyproject.toml", "setup.py", "setup.cfg", "uv.toml", "poetry.toml", "pip.conf",
			".python-version", ".tool-versions", "mise.toml", ".mise.toml",
		},
		locks:    []string{"requirements.txt", "poetry.lock", "uv.lock"},
		prefixes: []string{"PIP_", "UV_", "POETRY_", "PYTHON", "PYENV_", "VIRTUAL_ENV"},
		version:  []string{"python3", "--version"},
	},
	"go": {
		manifests: []string{"go.mod", "go.work", "go.work.sum", filepath.Join("vendor", "modules.txt")},
		locks:     []string{"go.sum"},
		prefixes:  []string{"GO"},
		version:   []string{"go", "version"},
	},
}

// Describe returns the stamp of the program's dependencies. An error of type [*Doubt] means that they must
// always be installed.
func Describe(p Program) (*Stamp, error) {
	language, ok := languages[p.Project.Runtime]
	switch {
	case !ok:
		return nil, doubt("programs of the runtime %s are always built", p.Project.Runtime)
	case p.Project.Packages:
		return nil, doubt("the project lists packages or plugins")
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "1 %s\n", p.Project.Runtime)
	locked := false
	if err := hashFile(sum, p.File); err != nil {
		return nil, err
	}
	for dir := p.Dir; ; dir = filepath.Dir(dir) {
		for _, name := range slices.Concat(language.manifests, language.locks) {
			path := filepath.Join(dir, name)
			err := hashFile(sum, path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = check(path)
			}
			if err != nil {
				return nil, err
			}
			locked = locked || slices.Contains(language.locks, name)
		}
		if dir == p.Root || dir == filepath.Dir(dir) {
			break
		}
	}
	if !locked {
		return nil, doubt("there is no lock file")
	}
	for _, entry := range slices.Sorted(slices.Values(p.Environ)) {
		name, _, _ := strings.Cut(entry, "=")
		if slices.Contains(p.Secrets, name) {
			entry = name // with its digest, a short secret could be guessed
		}
		if slices.ContainsFunc(language.prefixes, func(prefix string) bool { return strings.HasPrefix(entry, prefix) }) {
			fmt.Fprintf(sum, "%q\n", entry)
		}
	}
	cmd := exec.Command(language.version[0], language.version[1:]...) //nolint:noctx // constants; the step can be stopped
	cmd.Dir, cmd.Env = p.Dir, append(slices.Clone(p.Environ), "PWD="+p.Dir)
	version, err := cmd.Output()
	if err != nil {
		return nil, doubt("reading the version of %s: %v", language.version[0], err)
	}
	fmt.Fprintf(sum, "%q\n", version)
	dir, err := p.installed()
	if err != nil {
		return nil, err
	}
	return &Stamp{Digest: hex.EncodeToString(sum.Sum(nil)), Dir: dir}, nil
}

// Reconciles reports whether an installation removes the packages that the program no longer needs.
func Reconciles(p pulumi.Project) bool { return p.Runtime != "python" }

// Remove removes the directory of an installation from the checkout.
func (s *Stamp) Remove(ctx context.Context, root string) error {
	if s.Dir == "" {
		return nil
	}
	checkout, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer checkout.Close() // opened for reading only
	return dirtree.Remove(ctx, checkout, s.Dir)
}

// Complete reports whether the directory of a finished installation exists in the checkout.
func (s *Stamp) Complete(root string) bool {
	if s.Dir == "" {
		return true
	}
	checkout, err := os.OpenRoot(root)
	if err != nil {
		return false
	}
	defer checkout.Close() // opened for reading only
	info, err := checkout.Lstat(s.Dir)
	return err == nil && info.IsDir()
}

// installed returns the directory into which the dependencies are installed, relative to the checkout.
func (p Program) installed() (string, error) {
	var dir string
	switch p.Project.Runtime {
	case "nodejs":
		// Tools install next to the lock file.
		for at := p.Dir; dir == ""; at = filepath.Dir(at) {
			if slices.ContainsFunc(languages["nodejs"].locks, func(name string) bool { return exists(filepath.Join(at, name)) }) {
				dir = filepath.Join(at, "node_modules")
			}
			if at == p.Root || at == filepath.Dir(at) {
				break
			}
		}
	case "python":
		name := p.Project.VirtualEnv
		if name == "" && exists(filepath.Join(filepath.Dir(p.File), "uv.lock")) {
			name = ".venv"
		}
		if name != "venv" && name != ".venv" {
			return "", doubt("the virtual environment is not in a directory venv or .venv")
		}
		dir = filepath.Join(filepath.Dir(p.File), name)
	case "go":
		return "", nil
	}
	rel, err := filepath.Rel(p.Root, dir)
	if dir == "" || err != nil || !filepath.IsLocal(rel) {
		return "", doubt("the dependencies are not installed into the checkout")
	}
	return rel, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func hashFile(sum hash.Hash, path string) error {
	data, err := read(path)
	if err != nil {
		return err
	}
	fmt.Fprintf(sum, "%q %d\n", path, len(data))
	sum.Write(data)
	return nil
}

// read reads a file of the checkout, which must not be a link to a file that changes without a commit.
func read(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, doubt("%s is not a regular file", filepath.Base(path))
	}
	data, err := boundedfile.Read(path, maxFile)
	if err != nil {
		return nil, doubt("reading %s: %v", filepath.Base(path), err)
	}
	return data, nil
}

var (
	// localPackage matches dependencies that are directories of the repository, in package.json.
	localPackage = regexp.MustCompile(`"(file|link|portal|workspace|patch):|"(workspaces|patchedDependencies)"\s*:`)
	// localPath matches a dependency in package.json that npm takes for a path without file:.
	localPath = regexp.MustCompile(`(?i)^(\.|/|~/|[a-z]:)|\.(tgz|tar|tar\.gz)$`)
	// localPython matches the same in pyproject.toml.
	localPython = regexp.MustCompile(`(?m)\b(path|workspace|editable)\s*=|file:|dynamic\s*=`)
	// requirement matches the lines of requirements.txt that refer to no file, directory or address: the name
	// of a package with extras, versions, a marker and checksums. pip accepts many other forms.
	requirement = regexp.MustCompile(`^\s*([A-Za-z0-9][\w.-]*\s*(\[[\w., -]*\])?\s*((===?|>=|<=|~=|!=|<|>)\s*[\w.*+!-]+\s*,?\s*)*` +
		`(;[^\\#]*)?)?(\s*--hash=[\w:]+)*\s*(#.*)?\\?\s*$`)
	// archive matches a name that pip takes for a file if the file exists.
	archive = regexp.MustCompile(`(?i)\.(whl|zip|tar|tgz|tbz|txz|tlz|gz|bz2|xz|lzma)\b`)
	// installScripts are the scripts of package.json that an installation runs.
	installScripts = []string{
		"preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare", "dependencies",
	}
)

// check returns a [*Doubt] if what an installation does depends on more than the manifests, or if it
// writes to more than the directory of the dependencies.
func check(path string) error {
	name := filepath.Base(path)
	var local func(text string) bool
	switch name {
	case "setup.py", "setup.cfg":
		return doubt("the program is a Python package that is built")
	case "package.json":
		local = localPackage.MatchString
	case "pyproject.toml":
		local = localPython.MatchString
	case "requirements.txt":
		local = localRequirements
	default:
		return nil
	}
	data, err := read(path)
	if err != nil {
		return err
	}
	if local(string(data)) {
		return doubt("%s refers to files or directories", name)
	}
	if name != "package.json" {
		return nil
	}
	var manifest struct {
		Scripts      map[string]any `json:"scripts"`
		Dependencies map[string]any `json:"dependencies"`
		Development  map[string]any `json:"devDependencies"`
		Optional     map[string]any `json:"optionalDependencies"`
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		return doubt("package.json is not valid JSON")
	}
	for _, list := range []map[string]any{manifest.Dependencies, manifest.Development, manifest.Optional} {
		for _, version := range list {
			if text, ok := version.(string); !ok || localPath.MatchString(text) {
				return doubt("%s refers to files or directories", name)
			}
		}
	}
	for _, script := range installScripts {
		if manifest.Scripts[script] != nil {
			return doubt("package.json has the script %s", script)
		}
	}
	return nil
}

// localRequirements reports whether a requirements.txt can refer to files, directories and addresses.
func localRequirements(text string) bool {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, " #")
		if !requirement.MatchString(line) || archive.MatchString(line) && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			return true
		}
	}
	return false
}
