package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Validate returns an error if a member is invalid. The error names the member.
func (s *Settings) Validate() error {
	if err := cmp.Or(checkText("tag", s.Tag, 256), checkText("concurrencyGroup", s.ConcurrencyGroup, 100), s.SourceContext.validate(), s.OperationContext.validate(), s.ExecutorContext.validate()); err != nil {
		return err
	}
	if s.GitHub != nil {
		if err := checkName("gitHub.repository", "github", s.GitHub.Repository); err != nil {
			return err
		}
	}
	if v := s.VCS; v != nil {
		if !slices.Contains(vcsProviders, v.Provider) {
			return fmt.Errorf("vcs.provider must be one of %s", strings.Join(vcsProviders, ", "))
		}
		return checkName("vcs.repository", v.Provider, v.Repository)
	}
	return nil
}

func checkName(name, provider, repository string) error {
	return member(name, repository, func(repository string) error {
		_, err := RepositoryName(provider, repository)
		return err
	})
}

// member checks a member's value unless it is empty. The error names the member.
func member(name, value string, check func(string) error) error {
	if value == "" {
		return nil
	}
	if err := check(value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

var vcsProviders = []string{"azure_devops", "bitbucket", "custom", "github", "gitlab"}

func (c *SourceContext) validate() error {
	if c == nil {
		return nil
	}
	g, h, t := c.Git, c.Hg, c.Template
	switch {
	case g != nil && h != nil, g != nil && t != nil, h != nil && t != nil:
		return errors.New("sourceContext takes one of git, hg and template, not several")
	case g != nil && g.Branch != "" && g.Commit != "":
		return errors.New("sourceContext.git takes branch or commit, not both")
	case g != nil:
		return cmp.Or(
			member("sourceContext.git.repoUrl", g.RepoURL, CheckRepoURL),
			member("sourceContext.git.branch", g.Branch, CheckBranch),
			member("sourceContext.git.commit", g.Commit, CheckCommit),
			member("sourceContext.git.tag", g.Tag, CheckBranch),
			member("sourceContext.git.repoDir", g.RepoDir, CheckRepoDir),
			g.GitAuth.validate("sourceContext.git.gitAuth"),
		)
	case h != nil && h.Branch != "" && h.Revision != "":
		return errors.New("sourceContext.hg takes branch or revision, not both")
	case h != nil:
		return cmp.Or(member("sourceContext.hg.repoUrl", h.RepoURL, CheckRepoURL), h.HgAuth.validate("sourceContext.hg.hgAuth"))
	case t != nil && t.SourceURL == "":
		return errors.New("sourceContext.template needs a sourceUrl")
	case t != nil:
		return cmp.Or(checkText("sourceContext.template.sourceUrl", t.SourceURL, 2048), t.GitAuth.validate("sourceContext.template.gitAuth"))
	}
	return nil
}

func (a *GitAuthSettings) validate(at string) error {
	switch {
	case a == nil:
		return nil
	case a.SSHAuth != nil && a.SSHAuth.SSHPrivateKey == nil:
		return fmt.Errorf("%s.sshAuth needs sshPrivateKey", at)
	case a.SSHAuth != nil && a.SSHAuth.SSHPrivateKey.size() > maxSSHKey:
		return fmt.Errorf("%s.sshAuth.sshPrivateKey has more than %d KiB", at, maxSSHKey>>10)
	case a.BasicAuth != nil && (a.BasicAuth.UserName == nil || a.BasicAuth.Password == nil):
		return fmt.Errorf("%s.basicAuth needs userName and password", at)
	}
	return nil
}

func isShellName(name string) bool { return MadeOf(name, 128, "_/", "_./+-") }
func isImageRef(ref string) bool   { return MadeOf(ref, 512, "", "._/:@-") }

func isEnvName(name string) bool {
	return name != "" && utf8.RuneCountInString(name) <= 256 &&
		!strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '=' || r == 0x7f })
}

// maxPreRunCommands limits the number of pre-run commands in a job. Each is a step.
const maxPreRunCommands = 200

// maxPostRunCommands limits the number of post-run commands in a job.
const maxPostRunCommands = 20

// Limits on a job's variables. They exist because Linux limits the size of an environment, and
// because each secret must be masked in all output.
const (
	maxVariables     = 2000
	maxDepth         = 1_000_000
	maxVariableBytes = 1 << 20 // in total
	maxSSHKey        = 64 << 10
)

// size returns the size of the plain value or ciphertext in bytes. A ciphertext is slightly larger
// than its plain value.
func (s Secret) size() int { return len(s.value) + len(s.ciphertext) }

func checkVariables(vars map[string]Secret) error {
	if len(vars) > maxVariables {
		return fmt.Errorf("operationContext.environmentVariables has more than %d variables", maxVariables)
	}
	if v, ok := vars[DepthVariable]; ok {
		text, known := v.Value()
		if n, err := strconv.Atoi(text); err != nil || n < 0 || n > maxDepth || !known || v.IsSecret() {
			return fmt.Errorf("operationContext.environmentVariables: %s must be a number of commits up to %d, or 0 for the whole history, and not a secret", DepthVariable, maxDepth)
		}
	}
	for _, name := range []string{SubmodulesVariable, LFSVariable, TagsVariable} {
		if v, ok := vars[name]; ok {
			text, known := v.Value()
			if _, err := strconv.ParseBool(text); err != nil || !known || v.IsSecret() {
				return fmt.Errorf("operationContext.environmentVariables: %s must be true or false, and not a secret", name)
			}
		}
	}
	if v := vars[PulumiVersionVariable]; v.IsSecret() {
		return fmt.Errorf("operationContext.environmentVariables: %s must not be a secret", PulumiVersionVariable)
	} else if text, _ := v.Value(); strings.TrimSpace(text) != "" {
		if _, err := ParseVersionRange(text); err != nil {
			return fmt.Errorf("operationContext.environmentVariables: %s: %w", PulumiVersionVariable, err)
		}
	}
	size := 0
	for name, v := range vars {
		if !isEnvName(name) {
			return fmt.Errorf("operationContext.environmentVariables: %q is not a valid name of a variable", name)
		}
		if plain, ok := v.Value(); ok && strings.ContainsRune(plain, 0) {
			return fmt.Errorf("operationContext.environmentVariables: the value of %s contains a NUL byte", name)
		}
		size += len(name) + v.size()
	}
	if size > maxVariableBytes {
		return fmt.Errorf("operationContext.environmentVariables has %d bytes; a job takes at most %d MiB, so put large values into files", size, maxVariableBytes>>20)
	}
	return nil
}

func (c *OperationContext) validate() error {
	if c == nil {
		return nil
	}
	if len(c.PreRunCommands) > maxPreRunCommands {
		return fmt.Errorf("operationContext.preRunCommands has more than %d commands; put them into a script", maxPreRunCommands)
	}
	for i, command := range c.PreRunCommands {
		if strings.ContainsRune(command, 0) {
			return fmt.Errorf("operationContext.preRunCommands[%d] contains a NUL byte", i)
		}
	}
	if len(c.PostRunCommands) > maxPostRunCommands {
		return fmt.Errorf("operationContext.postRunCommands has more than %d commands; put them into a script", maxPostRunCommands)
	}
	for i, p := range c.PostRunCommands {
		switch {
		case strings.TrimSpace(p.Command) == "":
			return fmt.Errorf("operationContext.postRunCommands[%d] has no command", i)
		case strings.ContainsRune(p.Command, 0):
			return fmt.Errorf("operationContext.postRunCommands[%d] contains a NUL byte", i)
		case !slices.Contains([]string{"", WhenAlways, WhenSuccess, WhenFailure}, p.When):
			return fmt.Errorf("operationContext.postRunCommands[%d].when must be %s, %s or %s", i, WhenAlways, WhenSuccess, WhenFailure)
		}
	}
	if err := cmp.Or(checkVariables(c.EnvironmentVariables), checkEnvironments(c.Environments)); err != nil {
		return err
	}
	if o := c.Options; o != nil && o.Shell != "" && !isShellName(o.Shell) {
		return fmt.Errorf("operationContext.options.shell: %q is not the name or path of a shell", o.Shell)
	}
	return c.OIDC.validate()
}

func (o *OIDCSettings) validate() error {
	if o == nil {
		return nil
	}
	if a := o.AWS; a != nil && (a.RoleARN == "" || a.SessionName == "") {
		return errors.New("operationContext.oidc.aws needs roleArn and sessionName")
	} else if a != nil {
		if err := member("operationContext.oidc.aws.sessionName", a.SessionName, checkSessionName); err != nil {
			return err
		}
		if err := member("operationContext.oidc.aws.duration", a.Duration, checkDuration); err != nil {
			return err
		}
	}
	if a := o.Azure; a != nil && (a.ClientID == "" || a.TenantID == "" || a.SubscriptionID == "") {
		return errors.New("operationContext.oidc.azure needs clientId, tenantId and subscriptionId")
	}
	if g := o.GCP; g != nil && (g.ProjectID == "" || g.WorkloadPoolID == "" || g.ProviderID == "" || g.ServiceAccount == "") {
		return errors.New("operationContext.oidc.gcp needs projectId, workloadPoolId, providerId and serviceAccount")
	} else if g != nil {
		return member("operationContext.oidc.gcp.tokenLifetime", g.TokenLifetime, checkDuration)
	}
	return nil
}

// Any reports whether cloud credentials are requested.
func (o *OIDCSettings) Any() bool {
	return o != nil && (o.AWS != nil || o.Azure != nil || o.GCP != nil)
}

func (c *ExecutorContext) validate() error {
	if c == nil {
		return nil
	}
	if i := c.ExecutorImage; i != nil {
		switch cr := i.Credentials; {
		case i.Reference != "" && !isImageRef(i.Reference):
			return fmt.Errorf("executorContext.executorImage: %q is not an image reference", i.Reference)
		case i.Reference == "" && cr != nil:
			return errors.New("executorContext.executorImage has credentials but no reference")
		case cr != nil && (cr.Username == "" || cr.Password == nil):
			return errors.New("executorContext.executorImage.credentials needs username and password")
		}
	}
	p := c.ExecutorRootPath
	if err := checkText("executorContext.executorRootPath", p, 1024); err != nil {
		return err
	}
	if p != "" && (!path.IsAbs(p) || slices.Contains(strings.Split(p, "/"), "..")) {
		return errors.New("executorContext.executorRootPath must be an absolute path without parent directories")
	}
	return nil
}

// CheckRepoURL returns an error unless [ParseRepository] accepts the address and the address
// contains no credentials.
func CheckRepoURL(repo string) error {
	if err := checkWord(repo, maxRepositoryURL); err != nil {
		return err
	}
	r, err := ParseRepository(repo)
	switch {
	case err != nil:
		return err
	case r.Password != "":
		return errors.New("it contains a password; put credentials into gitAuth, where they are encrypted")
	case looksLikeToken(r.User):
		return errors.New("it seems to contain a token; put the token into gitAuth.accessToken, where it is encrypted")
	}
	return nil
}

// looksLikeToken reports whether the user name of a URL is probably a token, as in
// https://TOKEN@host. User names that servers prescribe are words, and other user names are shorter
// than tokens.
func looksLikeToken(user string) bool {
	prefixes := []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-", "ATBB", "ATCTT"}
	return len(user) >= 40 || slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(user, prefix) })
}

// CheckBranch returns an error unless git can have a branch with the name, or a full ref, that does not look like an
// option. The rules are those of git check-ref-format --branch.
func CheckBranch(branch string) error {
	if err := checkWord(branch, 1000); err != nil {
		return fmt.Errorf("%q cannot be a branch: %w", clip(branch), err)
	}
	if text := wrongRef(branch); text != "" {
		return fmt.Errorf("%q cannot be a branch: %s", clip(branch), text)
	}
	return nil
}

// wrongRef says which rule of git a name breaks; "" if none.
func wrongRef(name string) string {
	if at := strings.IndexAny(name, "~^:?*[\\"); at >= 0 {
		return fmt.Sprintf("it contains %q", name[at:at+1])
	}
	for _, text := range []string{"..", "@{", "//"} {
		if strings.Contains(name, text) {
			return fmt.Sprintf("it contains %q", text)
		}
	}
	if strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/") || strings.HasSuffix(name, ".") {
		return "it begins or ends with a slash, or ends with a dot"
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return "a part of it begins with a dot, or ends with .lock"
		}
	}
	// git rejects such branches, or interprets them as the current branch.
	short, full := strings.CutPrefix(name, "refs/heads/")
	if short == "@" || short == "HEAD" || full && strings.HasPrefix(short, "-") {
		return "git has another meaning for it"
	}
	return ""
}

// CheckCommit returns an error unless commit is a commit hash, which can be abbreviated.
func CheckCommit(commit string) error {
	if len(commit) < 7 || len(commit) > 64 || strings.Trim(commit, "0123456789abcdefABCDEF") != "" {
		return fmt.Errorf("%q is not the hash of a commit (7 to 64 hexadecimal digits)", clip(commit))
	}
	return nil
}

// CheckRepoDir returns an error unless dir is a directory inside a repository. A leading slash
// means the repository's root.
func CheckRepoDir(dir string) error {
	if err := checkText("the directory", dir, 1024); err != nil {
		return err
	}
	if strings.HasPrefix(dir, "-") {
		return errors.New("it starts with a dash")
	}
	if strings.ContainsRune(dir, '\\') || slices.Contains(strings.Split(dir, "/"), "..") {
		return errors.New("it must stay inside the repository: no .. and no backslashes")
	}
	return nil
}

// checkWord returns an error if s is empty or too long, looks like an option, or contains a space
// or a control character.
func checkWord(s string, limit int) error {
	if s == "" {
		return errors.New("it is empty")
	}
	if strings.HasPrefix(s, "-") {
		return errors.New("it starts with a dash")
	}
	if len(s) > limit {
		return fmt.Errorf("it is longer than %d bytes", limit)
	}
	if strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || unicode.IsSpace(r) || r == unicode.ReplacementChar
	}) {
		return errors.New("it contains a space or a control character")
	}
	return nil
}

func checkText(at, s string, limit int) error {
	if len(s) > limit {
		return fmt.Errorf("%s is longer than %d bytes", at, limit)
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("%s contains a control character", at)
	}
	return nil
}

func checkDuration(s string) error {
	if d, err := time.ParseDuration(s); err != nil || d <= 0 {
		return fmt.Errorf("%q is not a duration like 30m or 1h", s)
	}
	return nil
}

// clip shortens a text that a client has chosen.
func clip(text string) string {
	const limit = 80
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
