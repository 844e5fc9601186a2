package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"workflowagent/internal/workflow"
)

// AskpassEnv is the environment variable that makes a program started by git or ssh act as an
// askpass program. Its value is the file to pass to [Answer]. Only git's environment contains it.
const AskpassEnv = "WORKFLOW_RUNNER_ASKPASS"

type login struct {
	repo    *workflow.Repository
	private string  // directory for credentials
	answers answers // to git's and ssh's prompts
	env     []string
	notes   []string // lines for the log
}

type answers struct {
	Origin     string `json:"origin,omitempty"` // scheme://host[:port]
	Username   string `json:"username,omitempty"`
	Password   string `json:"password,omitempty"`
	Passphrase string `json:"passphrase,omitempty"`
	KeyFile    string `json:"keyFile,omitempty"`
}

// newLogin selects credentials that fit the URL: an SSH key for ssh, or else the access token, the
// user name and password, or the credentials in the URL, in this order. It writes them to files in
// the directory private, so that the environment contains no secret.
func newLogin(repo *workflow.Repository, auth *workflow.GitAuth, private, askpass string) (*login, error) {
	if auth == nil {
		auth = &workflow.GitAuth{}
	}
	l := &login{repo: repo, private: private}
	var a answers
	var err error
	if repo.Scheme == "ssh" {
		a, err = l.useSSH(auth, private)
	} else {
		a = l.useHTTP(repo, auth)
	}
	if err != nil || a == (answers{}) {
		return l, err
	}
	l.answers = a
	file := filepath.Join(private, "answers.json")
	data, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encoding the git credentials: %w", err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, fmt.Errorf("storing the step's git credentials: %w", err)
	}
	l.env = append(l.env,
		AskpassEnv+"="+file,
		"GIT_ASKPASS="+askpass,
		"SSH_ASKPASS="+askpass,
		"SSH_ASKPASS_REQUIRE=force",
		"DISPLAY=none:0", // OpenSSH before 8.4 runs no askpass program without a display
	)
	return l, nil
}

func (l *login) useHTTP(repo *workflow.Repository, auth *workflow.GitAuth) answers {
	a := answers{Origin: repo.Origin()}
	switch {
	case auth.AccessToken != "":
		a.Username, a.Password = repo.User, strings.TrimSpace(auth.AccessToken)
		if a.Username == "" {
			a.Username = tokenUser(repo.Host)
		}
	case auth.UserName != "" || auth.Password != "":
		// Files and copied text end with a newline, which no server accepts, and git cuts off.
		a.Username, a.Password = strings.TrimSpace(auth.UserName), strings.TrimRight(auth.Password, "\r\n")
	case repo.Password != "":
		a.Username, a.Password = repo.User, repo.Password
	case repo.User != "":
		// The form is https://TOKEN@host. Servers with this form expect the token as the user name
		// and accept any password.
		a.Username, a.Password = repo.User, "x-oauth-basic"
	case auth.SSHPrivateKey != "":
		l.notes = append(l.notes, "warning: ignoring the deployment's SSH key, because the repository URL is not an SSH URL")
		return answers{}
	default:
		return answers{}
	}
	if cleartext(repo) {
		l.notes = append(l.notes, "warning: the credentials for "+repo.Host+" are sent over the network unencrypted: use https")
	}
	return a
}

// tokenUser returns the user name to send with a bare access token. Most servers accept any name.
// These servers require their own for some kinds of tokens.
func tokenUser(host string) string {
	host = strings.ToLower(host)
	switch {
	case strings.Contains(host, "gitlab"):
		return "oauth2"
	case strings.Contains(host, "bitbucket"):
		return "x-token-auth"
	}
	return "x-access-token"
}

// useSSH makes git use only the deployment's key. It accepts the server's key at the first
// connection, because a new container has no known host keys. If the image's system-wide
// known_hosts lists the server, the server's key must match.
func (l *login) useSSH(auth *workflow.GitAuth, private string) (answers, error) {
	options := []string{
		"-o", "StrictHostKeyChecking=accept-new",
		"-o", "UserKnownHostsFile=" + sshQuote(filepath.Join(private, "known_hosts")),
		"-o", "ConnectTimeout=30",
		"-o", "ServerAliveInterval=15",
		"-o", "ServerAliveCountMax=4",
	}
	if auth.SSHPrivateKey == "" {
		if auth.AccessToken != "" || auth.Password != "" {
			l.notes = append(l.notes, "warning: ignoring the deployment's token or password, because the repository URL is an SSH URL")
		}
		// If the deployment has no key, try the image's keys.
		l.env = append(l.env, "GIT_SSH_COMMAND=ssh "+shellJoin(append(options, "-o", "BatchMode=yes")))
		return answers{}, nil
	}
	key := filepath.Join(private, "key")
	// Web forms remove a key's final newline and add carriage returns.
	text := strings.TrimSpace(strings.ReplaceAll(auth.SSHPrivateKey, "\r\n", "\n")) + "\n"
	if !strings.Contains(text, "PRIVATE KEY-----") {
		return answers{}, errors.New("the deployment's SSH private key is not in PEM or OpenSSH format")
	}
	if err := os.WriteFile(key, []byte(text), 0o600); err != nil {
		return answers{}, fmt.Errorf("storing the step's SSH key: %w", err)
	}
	options = append(options, "-F", os.DevNull, "-i", key, "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none")
	// With other methods, a server could ask any question, even for a passphrase.
	options = append(options, "-o", "PreferredAuthentications=publickey")
	a := answers{Passphrase: auth.SSHPassphrase, KeyFile: key}
	if auth.SSHPassphrase == "" {
		options = append(options, "-o", "BatchMode=yes")
		a = answers{}
	}
	l.env = append(l.env, "GIT_SSH_COMMAND=ssh "+shellJoin(options))
	return a, nil
}

func sshQuote(path string) string { return `"` + path + `"` }

func shellJoin(args []string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// maxPromptFile is the number of bytes of a key's file name that ssh prints in its prompt.
const maxPromptFile = 100

// Answer returns an askpass program's response to a prompt from git or ssh. It responds only for
// the repository's own origin, so that a redirect to another host receives no credentials.
func Answer(file, prompt string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the step's credentials: %w", err)
	}
	var a answers
	if err := json.Unmarshal(data, &a); err != nil {
		return "", errors.New("reading the step's credentials: not valid JSON")
	}
	prompt = strings.TrimSpace(prompt)
	if strings.HasPrefix(prompt, "Enter passphrase for") {
		if a.Passphrase == "" || !strings.Contains(prompt, a.KeyFile[:min(len(a.KeyFile), maxPromptFile)]) {
			return "", errors.New("the deployment has no passphrase for this key")
		}
		return a.Passphrase, nil
	}
	// Compare the whole prompt and never parse it: git before 2.48.1 decodes the URL, so that
	// escapes in user names and hosts can imitate other hosts.
	scheme, host, _ := strings.Cut(a.Origin, "://")
	switch {
	case a.Origin == "":
	case prompt == "Username for '"+a.Origin+"':":
		return a.Username, nil
	case a.Username == "" && prompt == "Password for '"+a.Origin+"':":
		return a.Password, nil
	case prompt == "Password for '"+scheme+"://"+a.Username+"@"+host+"':", // the form of git before 2.48.1
		prompt == "Password for '"+scheme+"://"+gitEscape(a.Username)+"@"+host+"':":
		return a.Password, nil
	}
	return "", errors.New("no credentials are available for this host")
}

func gitEscape(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c < 0x80 && (strings.IndexByte("-._~", c) >= 0 || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
