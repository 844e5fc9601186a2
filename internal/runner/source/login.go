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

// AskpassEnv names the environment variable that turns a program started by git or ssh into an
// askpass program: its value is the file for [Answer]. Only git's environment has it.
const AskpassEnv = "WORKFLOW_RUNNER_ASKPASS"

type login struct {
	env   []string
	notes []string // for the log
}

type answers struct {
	Origin     string `json:"origin,omitempty"` // scheme://host[:port]
	Username   string `json:"username,omitempty"`
	Password   string `json:"password,omitempty"`
	Passphrase string `json:"passphrase,omitempty"`
	KeyFile    string `json:"keyFile,omitempty"`
}

// newLogin selects the credentials that fit the URL: an SSH key for ssh, else the access token,
// else user name and password, else those in the URL. It writes them to files in private; the
// environment holds no secret.
func newLogin(repo *workflow.Repository, auth *workflow.GitAuth, private, askpass string) (*login, error) {
	if auth == nil {
		auth = &workflow.GitAuth{}
	}
	l := &login{}
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
	file := filepath.Join(private, "answers.json")
	data, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encoding the git credentials: %w", err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, fmt.Errorf("storing the git credentials for this step: %w", err)
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
		a.Username, a.Password = repo.User, auth.AccessToken
		if a.Username == "" {
			a.Username = tokenUser(repo.Host)
		}
	case auth.UserName != "" || auth.Password != "":
		a.Username, a.Password = auth.UserName, auth.Password
	case repo.Password != "":
		a.Username, a.Password = repo.User, repo.Password
	case repo.User != "":
		// https://TOKEN@host: servers with this form expect the token as the user and accept
		// any password.
		a.Username, a.Password = repo.User, "x-oauth-basic"
	case auth.SSHPrivateKey != "":
		l.notes = append(l.notes, "warning: the deployment has an SSH key, but the repository URL is not an SSH URL: the key is not used")
		return answers{}
	default:
		return answers{}
	}
	if cleartext(repo) {
		l.notes = append(l.notes, "warning: the credentials for "+repo.Host+" go over the network unencrypted: use https")
	}
	return a
}

// tokenUser is the user name that goes with a bare access token. Most servers accept any; these
// require their own for some kinds of tokens.
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
// connection, because a new container knows none, unless the image's system-wide known_hosts
// has one: then it must match.
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
			l.notes = append(l.notes, "warning: the deployment has a token or password, but the repository URL is an SSH URL: it is not used")
		}
		// Without a key of the deployment, try the image's keys.
		l.env = append(l.env, "GIT_SSH_COMMAND=ssh "+shellJoin(append(options, "-o", "BatchMode=yes")))
		return answers{}, nil
	}
	key := filepath.Join(private, "key")
	// Web forms drop a key's last newline and add carriage returns.
	text := strings.TrimSpace(strings.ReplaceAll(auth.SSHPrivateKey, "\r\n", "\n")) + "\n"
	if !strings.Contains(text, "PRIVATE KEY-----") {
		return answers{}, errors.New("the SSH private key of the deployment is not a private key in PEM or OpenSSH form")
	}
	if err := os.WriteFile(key, []byte(text), 0o600); err != nil {
		return answers{}, fmt.Errorf("storing the SSH key for this step: %w", err)
	}
	options = append(options, "-F", os.DevNull, "-i", key, "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none")
	// By other methods a server may ask any question, even for a passphrase.
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

// maxPromptFile is how many bytes of a key's file name ssh prints in its question.
const maxPromptFile = 100

// Answer returns the answer to a question of git or ssh to its askpass program. It answers only
// for the repository's own origin, so that a redirect to another host gets no credentials.
func Answer(file, prompt string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the credentials of this step: %w", err)
	}
	var a answers
	if err := json.Unmarshal(data, &a); err != nil {
		return "", errors.New("the credentials of this step cannot be read")
	}
	prompt = strings.TrimSpace(prompt)
	if strings.HasPrefix(prompt, "Enter passphrase for") {
		if a.Passphrase == "" || !strings.Contains(prompt, a.KeyFile[:min(len(a.KeyFile), maxPromptFile)]) {
			return "", errors.New("there is no passphrase for this key")
		}
		return a.Passphrase, nil
	}
	// Compare the whole question and never parse it: git before 2.48.1 decodes its URL, so that
	// user names and hosts with escapes look like others.
	scheme, host, _ := strings.Cut(a.Origin, "://")
	switch {
	case a.Origin == "":
	case prompt == "Username for '"+a.Origin+"':":
		return a.Username, nil
	case a.Username == "" && prompt == "Password for '"+a.Origin+"':":
		return a.Password, nil
	case prompt == "Password for '"+scheme+"://"+a.Username+"@"+host+"':", // as git before 2.48.1 writes a name
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
